"""Evolution strategies: parameters that the returns of a round move."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.parameters import ParameterSpec
from distrl.checkpoints.variables import parameter_specs, select_parameters
from distrl.cluster.local_session import local_session
from distrl.core import seeds
from distrl.core.errors import ConfigError
from distrl.core.returns_of_pairs import PairShares, moments_of
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import EnvironmentSpec
from distrl.learners.flat_adam import FlatAdam
from distrl.losses.evolution import antithetic_gradient, centred_ranks
from distrl.losses.perturbations import Perturbations
from distrl.models.es import ESModel
from distrl.networks.placeholders import placeholders

_BLOCK = 256  # vectors of noise that are held at once


@dataclasses.dataclass(frozen=True)
class ESSettings:
    """How policies are perturbed, and what follows from their returns."""

    pairs_per_round: int = 16  # of each actor; twice as many episodes
    noise_std: float = 0.05  # in units of the parameters
    learning_rate: float = 0.01  # of Adam
    weight_decay: float = 0.005  # share of the parameters that the gradient loses
    noise_table_size: int | None = 5_000_000  # numbers; None: each from its own seed
    max_episode_steps: int | None = None  # env steps, then a return is what it is

    def __post_init__(self) -> None:
        above = ["pairs_per_round", "noise_std", "learning_rate"]
        limits = ("noise_table_size", "max_episode_steps")
        for name in above + [n for n in limits if getattr(self, n) is not None]:
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"ESSettings.{name}: expected > 0, got {getattr(self, name)}"
                )
        if not self.weight_decay >= 0:
            raise ConfigError(
                f"ESSettings.weight_decay: expected >= 0, got {self.weight_decay}"
            )

    def perturbations(self, seed: int, vector_size: int) -> Perturbations:
        """Those of the run with this seed; equal in every task of it."""
        own = seeds.integer_seed(seeds.seed_sequence(seed, "learner", 0, restart=1))
        return Perturbations(own, self.noise_table_size, vector_size)


class ESParameters:
    """Which of a model's parameters are statistics, and which the network's.

    The network's are one vector, float32 `[size]`, in the order of `specs`.
    """

    def __init__(self, model: ESModel, specs: Sequence[ParameterSpec]):
        self.model, self.specs = model, list(specs)
        self.first = sum(spec.name.startswith("normaliser/") for spec in specs)
        self.shapes = [spec.shape for spec in self.specs[self.first :]]
        self.sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.size = sum(self.sizes)

    def vector(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The network's part of all parameters, as a copy."""
        return np.concatenate([array.ravel() for array in arrays[self.first :]])

    def arrays(self, vector: np.ndarray) -> list[np.ndarray]:
        """The other way, without the statistics."""
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return [p.reshape(s) for p, s in zip(parts, self.shapes, strict=True)]


class EvolutionSession:
    """Trains a model on the returns of perturbed policies; knows no other task.

    One `train` is one learner step. TensorFlow only makes the first parameters.
    """

    def __init__(
        self, model: ESModel, spec: EnvironmentSpec, seed: int, settings: ESSettings
    ):
        """Raises ConfigError for an action or observations that the model cannot use,
        and for a table of noise that is too small."""
        model.check(spec)
        self.parameter_specs, first = _first_parameters(model, spec, seed)
        self.layout = ESParameters(model, self.parameter_specs)
        self.settings, self.learner_steps = settings, 0
        self._perturbations = settings.perturbations(seed, self.layout.size)
        self._vector = self.layout.vector(first)
        self._adam = FlatAdam(self.layout.size, settings.learning_rate)
        self._moments = [
            RunningMoments(leaf.shape) for _, leaf in model.normalised_leaves(spec)
        ]

    def train(self, pairs: PairShares) -> dict[str, float]:
        """One learner step on all pairs of a round; what it was like.

        Raises ValueError for NaN among the returns.
        """
        settings = self.settings
        ranks = centred_ranks(pairs.returns)
        noise = self._noise(pairs.name)
        gradient = antithetic_gradient(noise, ranks, settings.noise_std)
        step = self._adam.step(gradient - settings.weight_decay * self._vector)
        self._vector = self._vector + step
        for own, news in zip(self._moments, moments_of(pairs), strict=True):
            own.merge(news)
        self.learner_steps += 1
        return {
            "perturbed_return": float(pairs.returns.mean()),
            "best_perturbed_return": float(pairs.returns.max()),
            "gradient_norm": float(np.linalg.norm(gradient)),
            "step_norm": float(np.linalg.norm(step)),
            "parameter_norm": float(np.linalg.norm(self._vector)),
        }

    def _noise(self, names: np.ndarray) -> Iterator[np.ndarray]:
        for at in range(0, len(names), _BLOCK):
            yield self._perturbations.rows(names[at : at + _BLOCK])

    def parameters(self) -> list[np.ndarray]:
        """What acting needs, in the order of `parameter_specs`."""
        statistics: list[np.ndarray] = []
        for own in self._moments:
            count = np.asarray(own.count, np.int64)
            statistics += [own.mean.copy(), own.variance.copy(), count]
        return [*statistics, *self.layout.arrays(self._vector)]

    def named(self, parameters: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters in the order of `parameter_specs`, by their names."""
        names = [spec.name for spec in self.parameter_specs]
        return dict(zip(names, parameters, strict=True))

    def state(self) -> dict[str, np.ndarray]:
        """All that `restore` needs, by name; no noise."""
        adam = {f"adam/{name}": value for name, value in self._adam.state().items()}
        return self.named(self.parameters()) | adam

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        """Raises ValueError, naming the parameter, for what is missing or differs."""
        arrays = select_parameters(self.parameter_specs, state)
        names = ("mean", "square", "num_steps")
        missing = [name for name in names if f"adam/{name}" not in state]
        if missing:
            raise ValueError(f"no state of Adam: {missing}")
        self._adam.restore({name: state[f"adam/{name}"] for name in names})
        self._vector = self.layout.vector(arrays)
        for index, own in enumerate(self._moments):
            mean, variance, count = arrays[3 * index : 3 * index + 3]
            own.load({"mean": mean, "variance": variance, "count": count})
        self.learner_steps = learner_steps


def _first_parameters(
    model: ESModel, spec: EnvironmentSpec, seed: int
) -> tuple[list[ParameterSpec], list[np.ndarray]]:
    """What the parameters look like, and those of this seed."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(seed)
        model.build_greedy(spec, placeholders(spec.observation, "observation"))
        variables = tf.global_variables()
        initialise = tf.global_variables_initializer()
        graph.finalize()
        with local_session(graph) as session:
            session.run(initialise)
            return parameter_specs(variables), session.run(variables)

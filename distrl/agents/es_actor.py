"""What an actor of evolution strategies does: returns of perturbed policies."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from distrl.agents.episode_counts import EpisodeCounts
from distrl.agents.first_episodes import FirstEpisodes
from distrl.agents.greedy_evaluation import GreedyEvaluation
from distrl.agents.settings import Rounds
from distrl.checkpoints.parameters import unflatten_parameters
from distrl.checkpoints.policy import PolicySession
from distrl.core import seeds
from distrl.core.nests import flatten_as, unflattener
from distrl.core.returns_of_pairs import PairShares, share_of_pairs
from distrl.core.running_moments import RunningMoments
from distrl.core.specs import EnvironmentSpec, Nest, leaves, named_leaves
from distrl.environments.vector_environment import VectorEnvironment
from distrl.learners.evolution_session import ESParameters, ESSettings
from distrl.lifecycle.task import Task
from distrl.models.es import ESModel
from distrl.models.population import Population

_KEPT_STEPS = 64  # vector steps whose observations are kept before they are summed up


class UnperturbedPolicy(PolicySession):
    """The model's policy under parameters as they travel."""

    def __init__(self, model: ESModel, spec: EnvironmentSpec):
        super().__init__(
            lambda observation: flatten_as(
                spec.action, model.build_greedy(spec, observation)[0]
            ),
            {"observation": spec.observation},
        )
        self._action = unflattener(spec.action)

    def load_flat(self, version: int, parameters: np.ndarray) -> None:
        """uint8 bytes. Raises ValueError when they do not fit the graph."""
        self.load(unflatten_parameters(parameters, self.parameter_specs))

    def greedy(self, observation: Nest, began: np.ndarray | None = None) -> Nest:
        """What the environment takes, `[N, ...]`."""
        return self._action(self.run(observation))


class SeenObservations:
    """Moments of the observations that were acted on, by normalised leaf."""

    def __init__(self, model: ESModel, spec: EnvironmentSpec):
        found = dict(model.normalised_leaves(spec))
        names = [path for path, _ in named_leaves(spec.observation)]
        self._which = [index for index, path in enumerate(names) if path in found]
        self.moments = [RunningMoments(leaf.shape) for leaf in found.values()]
        self._kept: list[list[np.ndarray]] = []

    def add(self, observation: Nest, counts: np.ndarray) -> None:
        """Rows `[N, ...]`, of which those of the mask `counts` count."""
        if self._which:
            arrays = leaves(observation)
            self._kept.append([arrays[index][counts] for index in self._which])
        if len(self._kept) >= _KEPT_STEPS:
            self.sum_up()

    def sum_up(self) -> None:
        """Takes in what was added; before, `moments` may lack the last rows."""
        if self._kept:
            for own, rows in zip(self.moments, zip(*self._kept), strict=True):  # noqa: B905
                own.update(np.concatenate(rows))
        self._kept = []


class ESActor:
    """One actor: as many perturbed policies at once as it has environments.

    Perturbations and the seeds of environments follow from the run's seed, the index of
    the actor and the version of the parameters, so that a round repeats. Both policies
    of a pair get the same seed.
    """

    def __init__(
        self,
        task: Task,
        environment: VectorEnvironment,
        evaluation: VectorEnvironment | None,
        model: ESModel,
        settings: ESSettings,
        rounds: Rounds,
    ):
        self._task, self._environment, self._model = task, environment, model
        self._settings, self._spec = settings, environment.spec
        self._unperturbed = UnperturbedPolicy(model, self._spec)
        self._layout = ESParameters(model, self._unperturbed.parameter_specs)
        self._population = Population(model, self._spec, self._layout.shapes)
        seed = task.run.seed
        self._perturbations = settings.perturbations(seed, self._layout.size)
        self._version, self._parameters = -1, np.zeros(0, np.uint8)
        self._evaluation = GreedyEvaluation(
            task,
            evaluation,
            lambda: self._unperturbed,
            rounds.evaluation_period_secs,
            rounds.evaluation_episodes,
        )
        self._counts = EpisodeCounts(
            task, [environment, *self._evaluation.environments]
        )

    def load(self, version: int, parameters: np.ndarray) -> None:
        specs = self._unperturbed.parameter_specs
        arrays = unflatten_parameters(parameters, specs)
        self._statistics = arrays[: self._layout.first]
        self._centre = self._layout.vector(arrays)
        self._version, self._parameters = version, parameters
        self._task.gauges["parameter_version"] = version

    def collect(self) -> tuple[PairShares, int] | None:
        began = time.monotonic()
        names, own_seeds = self._draw()
        seen = SeenObservations(self._model, self._spec)
        returns, lengths = [], []
        at_once = self._environment.num_envs // 2
        for at in range(0, len(names), at_once):
            self._perturb(names[at : at + at_once])
            episodes = self._play(own_seeds[at : at + at_once], seen)
            if episodes is None:
                return None
            returns.append(episodes.returns.reshape(-1, 2))
            lengths.append(episodes.lengths.reshape(-1, 2))
        seen.sum_up()
        self._counts.count_cpu()
        share = share_of_pairs(
            self._task.index,
            names,
            np.concatenate(returns),
            np.concatenate(lengths),
            seen.moments,
            time.monotonic() - began,
        )
        return share, int(share.length.sum())

    def _draw(self) -> tuple[np.ndarray, list[int]]:
        """Names of this round's perturbations, and the environment's seed of each."""
        place = ("actor", self._task.index, 0, self._version + 1)
        sequence = seeds.seed_sequence(self._task.run.seed, *place)
        random = np.random.Generator(np.random.PCG64(sequence))
        number = self._settings.pairs_per_round
        names = self._perturbations.draw(random, number)
        return names, random.integers(0, 1 << 31, number).tolist()

    def _perturb(self, names: np.ndarray) -> None:
        """Slots 2i and 2i + 1 get +, − of perturbation i."""
        noise = self._settings.noise_std * self._perturbations.rows(names)
        pairs = np.stack([self._centre + noise, self._centre - noise], axis=1)
        self._population.load(self._statistics, pairs.reshape(2 * len(names), -1))

    def _play(
        self, own_seeds: Sequence[int], seen: SeenObservations
    ) -> FirstEpisodes | None:
        """One episode in each slot; None when the task has to leave."""
        of_slots = np.repeat(own_seeds, 2).tolist()
        limit = self._settings.max_episode_steps
        episodes = FirstEpisodes(self._environment, of_slots, limit)
        while episodes.running.any():
            if self._task.signals.received:
                return None
            self._task.heartbeat.progress += 1
            seen.add(episodes.observation, episodes.running)
            actions = self._population.act(episodes.observation)
            self._counts.add(episodes.step(actions))
            self.idle()  # there is next to no time between rounds
        return episodes

    def idle(self) -> bool:
        """A step of an evaluation, if one is due."""
        return self._evaluation.advance(self._version, self._parameters)

    def close(self) -> None:
        self._unperturbed.close()
        self._evaluation.close()

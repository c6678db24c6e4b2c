"""Who plays against a learning policy in its own games."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from distrl.agents.epsilon_greedy import EpsilonGreedy
from distrl.checkpoints.parameters import unflatten_parameters
from distrl.checkpoints.policy import LocalPolicy
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.models.dqn import DQNModel
from distrl.models.policy_acting import PolicyModel
from distrl.networks.discrete import discrete_action, smallest_value
from distrl.worlds.messages import Message


class Opponents(Protocol):
    """Acts in all seats that do not learn, of N games."""

    def begin(self, game: int, seed: int) -> None:
        """A game begins, with this seed."""

    def act(self, games: Sequence[int], messages: Sequence[Message]) -> Sequence[Any]:
        """Actions, as the environment takes them, in these games (each may come only
        once), where this is what was observed."""

    def load(self, version: int, parameters: np.ndarray) -> None:
        """The newest parameters of the learning policy, uint8 as they travel."""

    def close(self) -> None:
        """Frees what it holds."""


#: From the spec of a seat, the number of games and a random stream.
OpponentsFactory = Callable[[EnvironmentSpec, int, np.random.SeedSequence], Opponents]


class RandomOpponents:
    """Any legal action is as likely as another; games of equal seeds are equal."""

    def __init__(
        self, spec: EnvironmentSpec, num_games: int, seed: np.random.SeedSequence
    ):
        """Raises ConfigError unless the action is one bounded integer."""
        action = discrete_action(spec)
        self._first, self._number = smallest_value(action), action.num_values
        self._random = [np.random.default_rng(one) for one in seed.spawn(num_games)]

    def begin(self, game: int, seed: int) -> None:
        self._random[game] = np.random.default_rng(seed)

    def act(self, games: Sequence[int], messages: Sequence[Message]) -> list[int]:
        pairs = zip(games, messages, strict=True)
        return [self._first + self._one(game, message) for game, message in pairs]

    def _one(self, game: int, message: Message) -> int:
        legal = message.get("legal_actions")
        choices = self._number if legal is None else np.flatnonzero(legal)
        return int(self._random[game].choice(choices))

    def load(self, version: int, parameters: np.ndarray) -> None:
        pass

    def close(self) -> None:
        pass


class _Version(Protocol):
    """A policy under one version of the parameters."""

    def load(self, version: int, parameters: np.ndarray) -> None: ...
    def act(self, observation: Nest) -> Nest: ...
    def close(self) -> None: ...


class PolicyOpponents:
    """The learning policy itself: self-play.

    In a game, the opponents act under the newest parameters, or, with probability
    `past_share`, under one of `pool_size` earlier versions, drawn when it begins. A
    version enters the pool every `pool_period` versions that were loaded, and pushes
    out the oldest (fictitious self-play, Heinrich, Lanctot and Silver 2015, in a small
    way).

    A DQNModel acts ε-greedily with `epsilon`; a model with a stochastic policy draws
    from it.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_games: int,
        seed: np.random.SeedSequence,
        model: DQNModel | PolicyModel,
        epsilon: float = 0.05,
        pool_size: int = 0,
        pool_period: int = 20,
        past_share: float = 0.5,
    ):
        """Raises ConfigError for numbers out of range, and a policy with a memory."""
        if not (0 <= epsilon <= 1 and 0 <= past_share <= 1):
            raise ConfigError(
                f"epsilon {epsilon} and past_share {past_share} must be in [0, 1]"
            )
        if pool_size < 0 or pool_period < 1:
            raise ConfigError(
                f"expected pool_size >= 0 and pool_period >= 1, got {pool_size} and "
                f"{pool_period}"
            )
        if model.core_spec != ():
            raise ConfigError("opponents need a policy without a recurrent core")
        self._make = lambda stream: _make_version(model, spec, epsilon, stream)
        self._pool_size, self._period = pool_size, pool_period
        self._past_share, self._seed = past_share, seed
        self._versions: list[_Version] = [self._make(seed.spawn(1)[0])]  # newest first
        self._drawn = np.zeros(num_games, np.int64)  # by game, which of them acts
        self._loads = 0
        self._lock = threading.Lock()  # versions may be loaded while games are played

    def begin(self, game: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        past = len(self._versions) - 1
        chosen = past > 0 and random.random() < self._past_share
        self._drawn[game] = 1 + random.integers(past) if chosen else 0

    def act(self, games: Sequence[int], messages: Sequence[Message]) -> list[Any]:
        drawn = self._drawn[list(games)]
        actions: list[Any] = [None] * len(messages)
        with self._lock:
            for number in np.unique(drawn).tolist():
                places = np.flatnonzero(drawn == number).tolist()
                shown = [messages[place]["observation"] for place in places]
                observation = map_nest(lambda *rows: np.stack(rows), *shown)
                acted = self._versions[number].act(observation)
                for row, place in enumerate(places):
                    actions[place] = map_nest(lambda leaf, n=row: leaf[n], acted)
        return actions

    def load(self, version: int, parameters: np.ndarray) -> None:
        with self._lock:
            if self._pool_size and self._loads % self._period == 0:
                self._remember(version, parameters)
            self._versions[0].load(version, parameters)
            self._loads += 1

    def _remember(self, version: int, parameters: np.ndarray) -> None:
        past = self._loads // self._period % self._pool_size + 1
        if past == len(self._versions):
            self._versions.append(self._make(self._seed.spawn(1)[0]))
        self._versions[past].load(version, parameters)

    def close(self) -> None:
        for version in self._versions:
            version.close()


def _make_version(
    model: DQNModel | PolicyModel,
    spec: EnvironmentSpec,
    epsilon: float,
    seed: np.random.SeedSequence,
) -> _Version:
    if isinstance(model, DQNModel):
        return _Greedy(model, spec, epsilon, seed)
    return _Sampled(model, spec, seed)


class _Greedy:
    """ε-greedy by action values, one ε for all rows."""

    def __init__(
        self,
        model: DQNModel,
        spec: EnvironmentSpec,
        epsilon: float,
        seed: np.random.SeedSequence,
    ):
        policy = LocalPolicy(model, spec)
        self._policy = EpsilonGreedy(policy, spec.action, [epsilon], seed)

    def load(self, version: int, parameters: np.ndarray) -> None:
        self._policy.load(version, parameters)

    def act(self, observation: Nest) -> Nest:
        return self._policy.decide(observation).action

    def close(self) -> None:
        self._policy.close()


class _Sampled:
    """Draws from a stochastic policy."""

    def __init__(
        self, model: PolicyModel, spec: EnvironmentSpec, seed: np.random.SeedSequence
    ):
        self._sampler = PolicySampler(model, spec)
        self._key, self._calls = int(seed.generate_state(1)[0] >> 1), 0

    def load(self, version: int, parameters: np.ndarray) -> None:
        specs = self._sampler.parameter_specs
        self._sampler.load(unflatten_parameters(parameters, specs))

    def act(self, observation: Nest) -> Nest:
        self._calls += 1
        acted = self._sampler.act(observation, (self._key, self._calls))
        return self._sampler.to_environment(acted.raw_action)

    def close(self) -> None:
        self._sampler.close()

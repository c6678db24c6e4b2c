"""Games with PettingZoo's interfaces, and players that keep what they are told."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import AECEnv, ParallelEnv

from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant
from distrl.worlds.random_participant import RandomParticipant

NUM_ACTIONS = 3


class _Lives:
    """Agent i is out behind `lives[i]` of its acts, in a game of the class on top. It
    sees [i, its acts, the seed]. Those in `truncated` are cut, the others terminated.
    """

    metadata = {"name": "lives", "is_parallelizable": True}
    render_mode = None

    def __init__(
        self,
        lives: Sequence[int],
        truncated: Sequence[int] = (),
        mask: Sequence[int] | None = None,
        num_actions: int = NUM_ACTIONS,
    ):
        self.possible_agents = [f"agent_{number}" for number in range(len(lives))]
        self.agents: list[str] = []
        self.lives, self.cut, self.mask = lives, truncated, mask
        sees, acts = Box(-1, 1 << 20, (3,), np.int64), Discrete(num_actions)
        self._spaces = {a: copy.deepcopy((sees, acts)) for a in self.possible_agents}
        self.seeds: list[int | None] = []  # of all resets
        self.closed = 0  # times
        self.actions: list[Any] = []  # of all steps

    def observation_space(self, agent):
        return self._spaces[agent][0]

    def action_space(self, agent):
        return self._spaces[agent][1]

    def close(self):
        self.closed += 1

    def _start(self, seed):
        self.seeds.append(seed)
        self.acted = dict.fromkeys(self.possible_agents, 0)
        self.agents = list(self.possible_agents)

    def number(self, agent):
        return self.possible_agents.index(agent)

    def observe(self, agent):
        seed = -1 if self.seeds[-1] is None else self.seeds[-1]
        return np.array([self.number(agent), self.acted[agent], seed])

    def is_out(self, agent):
        """Whether it is terminated, and truncated."""
        number = self.number(agent)
        out = self.acted[agent] >= self.lives[number]
        return out and number not in self.cut, out and number in self.cut

    def info(self, agent):
        return {} if self.mask is None else {"action_mask": np.array(self.mask)}


class Together(_Lives, ParallelEnv):
    """All act at once, for a reward of 1."""

    def reset(self, seed=None, options=None):
        self._start(seed)
        return self._all(self.observe), self._all(self.info)

    def step(self, actions):
        self.actions.append(dict(actions))
        for agent in self.agents:
            self.acted[agent] += 1
        ends = self._all(self.is_out)
        results = (
            self._all(self.observe),
            self._all(lambda agent: 1.0),
            {agent: end[0] for agent, end in ends.items()},
            {agent: end[1] for agent, end in ends.items()},
            self._all(self.info),
        )
        self.agents = [agent for agent in self.agents if not any(ends[agent])]
        return results

    def _all(self, show: Callable[[str], Any]) -> dict[str, Any]:
        return {agent: show(agent) for agent in self.agents}


class RoundRobin(_Lives, AECEnv):
    """One acts after another, also those that are out, by None. An act is worth 100, or
    0 when it is the last, and `gift` to each of the others."""

    def __init__(self, *arguments, gift: float = 0.0, **kwargs):
        super().__init__(*arguments, **kwargs)
        self.gift = gift

    def reset(self, seed=None, options=None):
        self._start(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._look()
        self.agent_selection = self.agents[0]

    def _look(self):
        self.infos = {agent: self.info(agent) for agent in self.agents}
        ends = {agent: self.is_out(agent) for agent in self.agents}
        self.terminations = {agent: end[0] for agent, end in ends.items()}
        self.truncations = {agent: end[1] for agent, end in ends.items()}

    def step(self, action):
        self.actions.append(action)
        agent, agents = self.agent_selection, list(self.agents)
        self.agent_selection = agents[(agents.index(agent) + 1) % len(agents)]
        if any(self.is_out(agent)):
            if action is not None:
                raise ValueError(f"{agent} is out and did {action}")
            self.agents.remove(agent)
            del self.rewards[agent], self._cumulative_rewards[agent]
            self._clear_rewards()
        else:
            self._cumulative_rewards[agent] = 0.0
            self.acted[agent] += 1
            for name in self.agents:
                own = 0.0 if any(self.is_out(agent)) else 100.0
                self.rewards[name] = own if name == agent else self.gift
            self._accumulate_rewards()
        self._look()


class Player(Participant):
    """Does what `choose` says to what it sees. Keeps (its name, what it was told) in
    `seen`, and (its name, what it saw) in `acted`, which it may have with others."""

    def __init__(
        self,
        name: str,
        choose: Callable[[Message], Any] = lambda message: 0,
        seen: list[tuple[str, Message]] | None = None,
    ):
        super().__init__(name)
        self.choose = choose
        self.seen = [] if seen is None else seen
        self.acted: list[Message] = []

    def observe(self, message: Message) -> None:
        super().observe(message)
        self.seen.append((self.id, message))

    def act(self) -> Message:
        self.acted.append(self.observation)
        return {"action": self.choose(self.observation)}


class BatchPlayer(Player):
    """The same for all rows at once; `calls` has what it was given each time."""

    def __init__(self, name: str, choose: Callable[[Message], Any]):
        super().__init__(name, choose)
        self.calls: list[list[Message]] = []

    def batch_act(self, messages: Sequence[Message]) -> list[Message]:
        self.calls.append(list(messages))
        return [{"action": self.choose(one)} if one else {} for one in messages]


class Chance(RandomParticipant):
    """A RandomParticipant. In `games`, by number, is all that it saw and did."""

    def __init__(self, num_actions: int, seed: int, name: str):
        super().__init__(num_actions, seed, name)
        self.games: dict[int, list[Any]] = {}

    def observe(self, message: Message) -> None:
        super().observe(message)
        self._game = message.get("episode", getattr(self, "_game", -1))
        facts = [plain(message["observation"]), message["reward"]]
        self._note([*facts, message["terminated"], message["truncated"]])

    def act(self) -> Message:
        message = super().act()
        self._note(message["action"])
        return message

    def _note(self, what: Any) -> None:
        self.games.setdefault(self._game, []).append(what)


class Failing(Player):
    """Cannot be shut down."""

    def shutdown(self) -> None:
        raise RuntimeError(f"{self.id} does not end")


class Made:
    """A factory that keeps what it makes."""

    def __init__(self, make: Callable[[], Any]):
        self.make, self.all = make, []

    def __call__(self):
        self.all.append(self.make())
        return self.all[-1]


def script(*actions: Any) -> Callable[[Message], Any]:
    """One after the other, whatever there is to see."""
    left = list(actions)
    return lambda message: left.pop(0)


def first_legal(message: Message) -> int:
    return int(np.flatnonzero(message["legal_actions"])[0])


def plain(value: Any) -> Any:
    """The same of lists and numbers, that can be compared."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return np.asarray(value).tolist()


def told(seen: Sequence[tuple[str, Message]], *fields: str) -> list[tuple]:
    """Of all that was told, to whom, and these fields."""
    return [(name, *(message[field] for field in fields)) for name, message in seen]

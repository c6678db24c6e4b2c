"""A world of distrl as an environment of PettingZoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import Space
from gymnasium.wrappers.utils import create_zero_array
from pettingzoo import AECEnv, ParallelEnv

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.outside_participant import OutsideParticipant
from distrl.worlds.participant import Participant
from distrl.worlds.world import Turns, World

#: From participants, one for each agent, and the index that numbers its episodes, to a
#: world. It may seat others, too: they are part of the environment.
MakeWorld = Callable[[Sequence[Participant], ExampleIndex], World]
Spaces = Mapping[str, Space]


class _Outsider(OutsideParticipant):
    """Remembers what it was told of the episode, and whether it is out."""

    def __init__(self, name: str):
        super().__init__(name)
        self.begin()

    def begin(self) -> None:
        self.observation, self.reward, self.out = {}, 0.0, False

    def observe(self, message: Message) -> None:
        super().observe(message)
        self.out = bool(message.get("episode_done", False))

    def act(self) -> Message:
        """What it says once it is out: nothing."""
        return {}

    def end(self, over: bool) -> tuple[bool, bool]:
        """Whether it was terminated, and truncated. When the episode is over, it was
        one of them."""
        if not (self.out or over):
            return False, False
        truncated = bool(self.observation.get("truncated", False))
        terminated = bool(self.observation.get("terminated", False))
        return terminated or not truncated, truncated

    def info(self) -> dict[str, Any]:
        return dict(self.observation.get("info", {}))


class _Game:
    """A world with seats that are moved from outside, and the parley under way."""

    def __init__(self, make_world: MakeWorld, agents: Sequence[str]):
        self.seats = {agent: _Outsider(agent) for agent in agents}
        self._index = ExampleIndex(None)
        self.world = make_world(list(self.seats.values()), self._index)
        self._episodes = 0
        self._turns: Turns | None = None

    def reset(self, seed: int | None) -> str:
        """Begins the episode of this number, or the next; which agent acts first."""
        self.world.reset()
        self._index.lend([self._episodes if seed is None else seed])
        self._episodes += 1
        for seat in self.seats.values():
            seat.begin()
        self._turns = self.world.play()
        agent = self._go_on(None)
        if agent is None:
            raise RuntimeError(f"the world {self.world.name!r} has nothing to play")
        return agent

    def act(self, action: Any) -> str | None:
        """Goes on with the act of the agent that was asked; which one is asked next,
        None at the end of the episode. Behind an error the episode cannot go on."""
        if self._turns is None:
            raise ValueError("no episode is under way: call reset()")
        return self._go_on({"action": action})

    def _go_on(self, act: Message | None) -> str | None:
        turns, self._turns = self._turns, None
        while turns is not None:
            try:
                participant = self.world.participant(turns.send(act))  # type: ignore[arg-type]
            except StopIteration:
                turns = None if self.world.episode_done else self.world.play()
                act = None
                continue
            if isinstance(participant, _Outsider) and not participant.out:
                self._turns = turns
                return participant.id
            act = participant.act()
        return None

    def observation(self, agent: str, space: Space) -> Any:
        """What an agent was shown last; zeros before that."""
        message = self.seats[agent].observation
        if "observation" in message:
            return message["observation"]
        return create_zero_array(space)


class _WorldEnvironment:
    """Episodes of a world, each seat moved by an agent; `reset(seed=n)` begins the one
    with the number n."""

    def __init__(
        self,
        make_world: MakeWorld,
        observation_spaces: Spaces,
        action_spaces: Spaces,
        name: str = "world",
    ):
        """`make_world` is given a participant for each agent, in the order of the
        spaces. Raises ValueError for agents that have not both of them."""
        if set(observation_spaces) != set(action_spaces):
            raise ValueError(
                "expected the same agents in both, got spaces of observations for "
                f"{list(observation_spaces)} and of actions for {list(action_spaces)}"
            )
        self.metadata = {
            "name": name,
            "render_modes": ["ansi"],
            "is_parallelizable": isinstance(self, ParallelEnv),
        }
        self.render_mode = "ansi"
        self.observation_spaces = dict(observation_spaces)
        self.action_spaces = dict(action_spaces)
        self.possible_agents = list(observation_spaces)
        self.agents: list[str] = []
        self._game = _Game(make_world, self.possible_agents)

    def observation_space(self, agent: str) -> Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        return self.action_spaces[agent]

    def observe(self, agent: str) -> Any:
        """What an agent was shown last; zeros before that."""
        return self._game.observation(agent, self.observation_spaces[agent])

    def render(self) -> str:
        return self._game.world.display()

    def close(self) -> None:
        self._game.world.shutdown()

    def _check_under_way(self) -> None:
        if not self.agents:
            raise ValueError("no episode is under way: call reset()")


class WorldAECEnv(_WorldEnvironment, AECEnv):
    """A world as an environment in which one agent acts at a time.

    The world tells a seat what it sees before it asks for its act, in messages with
    "observation" and "reward". An agent is out when it was told "episode_done", all are
    when the episode is over.
    """

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = self._game.reset(seed)
        self.infos = {agent: self._game.seats[agent].info() for agent in self.agents}

    def step(self, action: Any) -> None:
        """Raises ValueError without an episode under way, and for an agent that is out
        and does not step with None."""
        self._check_under_way()
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        following = self._game.act(action)
        for name in self.agents:
            seat = self._game.seats[name]
            self.rewards[name], self.infos[name] = seat.take_reward(), seat.info()
            ends = seat.end(over=following is None)
            self.terminations[name], self.truncations[name] = ends
        self._accumulate_rewards()
        if following is None:
            place = self.agents.index(agent) + 1
            self.agent_selection = self.agents[place % len(self.agents)]
        else:
            self.agent_selection = following
            self._deads_step_first()


class WorldParallelEnv(_WorldEnvironment, ParallelEnv):
    """The same for a world in which all seats act in every parley, not knowing of each
    other's acts."""

    def reset(
        self, seed: int | None = None, options: dict | None = None
    ) -> tuple[dict[str, Any], dict[str, dict]]:
        self.agents = list(self.possible_agents)
        self._next: str | None = self._game.reset(seed)
        return self._shown(self.agents), self._infos(self.agents)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Raises ValueError without an episode under way, and unless there is an action
        for each agent that is in it."""
        self._check_under_way()
        agents = self.agents
        if actions.keys() != set(agents):
            raise ValueError(f"expected an action for each of {agents}, got {actions}")
        for _ in agents:
            if self._next is not None:
                self._next = self._game.act(actions[self._next])
        seats = {agent: self._game.seats[agent] for agent in agents}
        ends = {name: seat.end(self._next is None) for name, seat in seats.items()}
        self.agents = [agent for agent in agents if not any(ends[agent])]
        return (
            self._shown(agents),
            {agent: seat.take_reward() for agent, seat in seats.items()},
            {agent: terminated for agent, (terminated, _) in ends.items()},
            {agent: truncated for agent, (_, truncated) in ends.items()},
            self._infos(agents),
        )

    def _shown(self, agents: Sequence[str]) -> dict[str, Any]:
        return {agent: self.observe(agent) for agent in agents}

    def _infos(self, agents: Sequence[str]) -> dict[str, dict]:
        return {agent: self._game.seats[agent].info() for agent in agents}

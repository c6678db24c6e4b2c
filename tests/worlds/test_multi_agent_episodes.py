"""W-26: episodes of several agents, as RLlib counts them.

RLlib's environments have no turns of their own: each step says whose observation is
next. Here BasicMultiAgent(n) is a parallel game, and RoundRobin(n) a turn-based one. An
environment step of RLlib's RoundRobin is what shows one more observation, whether the
agent before has acted or was out, so `t` of an observation is its place in the episode,
less the one that a reset shows. A transition is what one agent sees, and sees next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from small_games import Player, RoundRobin, Together, told

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.parallel_world import ParallelWorld
from distrl.worlds.pettingzoo_world import PettingZooWorld

pytestmark = pytest.mark.timeout(20)


def basic_multi_agent(participants, games=1):
    def make():
        return Together([25] * len(participants), num_actions=len(participants))

    return ParallelWorld(make, participants, ExampleIndex(games))


def round_robin(participants, games=1):
    def make():
        return RoundRobin([5] * len(participants))

    return PettingZooWorld(make, participants, ExampleIndex(games))


def mapped(number, policies):
    """Agent i is played by policy i % 2, which sits in several seats."""
    return [policies[agent % 2] for agent in range(number)]


def agent_of(message):
    return int(message["observation"][0])


class Transition(NamedTuple):
    observation: int
    next_observation: int
    reward: float
    done: bool
    t: int


def transitions(seen, num_steps) -> dict[int, list[Transition]]:
    """Of each agent, in the first so many environment steps."""
    found: dict[int, list[Transition]] = {}
    before: dict[int, Any] = {}
    steps = -1
    for _, message in seen:
        agent, place = agent_of(message), int(message["observation"][1])
        if "episode" in message and agent == 0:
            before, t = {}, -1  # what a reset shows
        else:
            steps, t = steps + 1, t + 1
        if steps >= num_steps:
            break
        if agent in before:
            found.setdefault(agent, []).append(
                Transition(
                    before[agent], place, message["reward"], message["episode_done"], t
                )
            )
        before[agent] = place
    return found


def test_all_are_done_in_the_25th_step():
    """BasicMultiAgent(4)."""
    seen = []
    world = basic_multi_agent([Player(str(seat), seen=seen) for seat in range(4)])
    for step in range(1, 26):
        seen.clear()
        assert world.parley()
        done = step == 25
        assert told(seen[-4:], "episode_done") == [(str(s), done) for s in range(4)]
        assert world.episode_done is done  # RLlib's __all__
    assert not world.parley()


def test_each_policy_has_the_rows_of_its_agents():
    """5 agents mapped to p{i % 2}, 50 steps: p0 has 150 rows, p1 100, and t of each of
    the 6 that p0 has played is 0 … 24."""
    policies = [Player("p0", agent_of), Player("p1", agent_of)]
    world = basic_multi_agent(mapped(5, policies), games=2)
    while world.parley():
        pass
    assert (world.steps, world.episodes) == (50, 2)
    assert [len(policy.acted) for policy in policies] == [150, 100]
    for policy, agents in zip(policies, ([0, 2, 4], [1, 3]), strict=True):
        rows: dict[tuple[int, int], list[int]] = {}
        for message in policy.acted:
            agent, t, game = message["observation"].tolist()
            rows.setdefault((agent, game), []).append(t)
        assert rows == {(a, game): list(range(25)) for a in agents for game in (0, 1)}
    assert world.environment.actions == [{f"agent_{n}": n for n in range(5)}] * 50


def test_one_after_another():
    """RoundRobin(2): one observation after another, over when both are out."""
    seen = []
    world = round_robin([Player("0", seen=seen), Player("1", seen=seen)])
    over = []
    while world.parley():
        over.append(world.episode_done)
        assert seen[-1][1]["episode_done"] is world.episode_done
    assert over == [False] * 9 + [True]
    assert [agent_of(message) for _, message in seen] == [0, 1] * 6
    assert [m["episode_done"] for _, m in seen] == [False] * 10 + [True] * 2


@pytest.mark.parametrize("shared", [False, True])
def test_the_transitions_of_a_round_robin(shared):
    """RoundRobin(5), 50 steps: 42 transitions, of which two agents' are known."""
    seen = []
    policies = [Player(f"p{number}", seen=seen) for number in range(5)]
    world = round_robin(mapped(5, policies) if shared else policies, games=2)
    while world.parley():
        pass
    assert (world.steps, world.episodes) == (50, 2)  # acts
    found = transitions(seen, 50)
    assert sum(map(len, found.values())) == 42
    first_ten = found[0][:5] + found[1][:5]
    observations, following, rewards, dones, times = zip(*first_ten, strict=True)
    assert list(observations) == [0, 1, 2, 3, 4] * 2
    assert list(following) == [1, 2, 3, 4, 5] * 2
    assert list(rewards) == [100, 100, 100, 100, 0] * 2
    assert list(dones) == [False, False, False, False, True] * 2
    assert list(times) == [4, 9, 14, 19, 24, 5, 10, 15, 20, 25]


@pytest.mark.parametrize("make", [basic_multi_agent, round_robin])
def test_nobody_is_asked_in_a_finished_game(make):
    """Acting on a finished game is an error in as_pettingzoo, see its tests: a world
    asks nobody, until it is reset."""
    policy = Player("policy")
    world = make([policy, policy])
    while world.parley():
        pass
    acts, told_of = len(policy.acted), len(policy.seen)
    assert not world.parley() and world.epoch_done
    assert (len(policy.acted), len(policy.seen)) == (acts, told_of)
    world.reset()
    assert not world.epoch_done and world.parley()
    assert len(policy.acted) > acts

"""Worlds turned back into PettingZoo's environments: PettingZoo's own tests of them,
and games that must be those of the environment inside, to the last number."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from examples import Nim
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv
from pettingzoo.classic import connect_four_v3, rps_v2, tictactoe_v3
from pettingzoo.sisl import multiwalker_v9
from pettingzoo.test import api_test, parallel_api_test
from pettingzoo.test.seed_test import parallel_seed_test, seed_test
from small_games import RoundRobin, Together, plain

from distrl.worlds.as_pettingzoo import WorldAECEnv, WorldParallelEnv
from distrl.worlds.environment_participant import EnvironmentParticipant
from distrl.worlds.parallel_world import ParallelWorld
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.pettingzoo_world import PettingZooWorld
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.world import World

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CYCLES = 50


def turned_back(kind, make):
    """The environment in a world, and that in an environment of this kind."""
    inside = make()
    world = ParallelWorld if isinstance(inside, ParallelEnv) else PettingZooWorld
    agents = inside.possible_agents
    return kind(
        lambda participants, index: world(make, participants, index),
        {agent: inside.observation_space(agent) for agent in agents},
        {agent: inside.action_space(agent) for agent in agents},
        str(inside),
    )


def early_ends():
    return RoundRobin([2, 5, 0, 3], truncated=[3], gift=1.0)


def early_parallel_ends():
    return Together([2, 5, 1, 3], truncated=[3])


rps = partial(rps_v2.parallel_env, max_cycles=4)
walkers = partial(multiwalker_v9.parallel_env, n_walkers=2, max_cycles=30)
TURN_BASED = {
    "tictactoe": tictactoe_v3.env,
    "connect_four": connect_four_v3.env,
    "rps": partial(rps_v2.env, max_cycles=4),
    "early ends": early_ends,
}
PARALLEL = {"rps": rps, "multiwalker": walkers, "early ends": early_parallel_ends}
turn_based = pytest.mark.parametrize("make", TURN_BASED.values(), ids=TURN_BASED)
parallel = pytest.mark.parametrize("make", PARALLEL.values(), ids=PARALLEL)


# What PettingZoo says.


@turn_based
def test_the_api_of_turn_based_games(make):
    api_test(turned_back(WorldAECEnv, make), CYCLES)


@parallel
def test_the_api_of_parallel_games(make):
    parallel_api_test(turned_back(WorldParallelEnv, make), CYCLES)


@parallel
def test_a_parallel_game_in_turns(make):
    api_test(turned_back(WorldAECEnv, make), CYCLES)


@turn_based
def test_seeds_of_turn_based_games(make):
    seed_test(lambda: turned_back(WorldAECEnv, make), CYCLES)


@parallel
def test_seeds_of_parallel_games(make):
    parallel_seed_test(lambda: turned_back(WorldParallelEnv, make), CYCLES)


# The same games as inside.


def turns(environment, seed):
    """(agent, what `last` said) of a game of random legal actions, by agent."""
    random = np.random.default_rng(seed)
    environment.reset(seed=seed)
    steps = []
    while environment.agents:
        agent = environment.agent_selection
        observation, *result = environment.last()
        steps.append((agent, plain(observation), *map(float, result[:3])))
        action = None
        if not any(result[1:3]):
            number = environment.action_space(agent).n
            mask = np.ones(number)
            if isinstance(observation, dict):
                mask = observation["action_mask"]
            action = int(random.choice(np.flatnonzero(mask)))
        environment.step(action)
    return steps


def by_agent(steps):
    return {agent: [s for s in steps if s[0] == agent] for agent, *_ in steps}


@pytest.mark.parametrize("game", ["tictactoe", "connect_four", "rps"])
def test_a_turn_based_game_is_the_one_inside(game):
    environment = turned_back(WorldAECEnv, TURN_BASED[game])
    for seed in range(5):
        assert turns(environment, seed) == turns(TURN_BASED[game](), seed)


def test_agents_with_different_ends_go_first():
    steps = turns(turned_back(WorldAECEnv, early_ends), 7)
    assert by_agent(steps) == by_agent(turns(early_ends(), 7))
    ends = [
        agent for agent, *_, terminated, truncated in steps if terminated + truncated
    ]
    assert ends == ["agent_2", "agent_0", "agent_3", "agent_1"]


def steps_of(environment, seed):
    """All that a game of seeded random actions shows."""
    steps = [plain(environment.reset(seed=seed))]
    for agent in environment.agents:
        environment.action_space(agent).seed(seed)
    while environment.agents:
        actions = {a: environment.action_space(a).sample() for a in environment.agents}
        steps.append(plain((*environment.step(actions), environment.agents)))
    return steps


@parallel
def test_a_parallel_game_is_the_one_inside(make):
    environment = turned_back(WorldParallelEnv, make)
    for seed in range(3):
        assert steps_of(environment, seed) == steps_of(make(), seed)


def test_the_seed_is_the_number_of_the_game():
    environment = turned_back(WorldParallelEnv, walkers)
    first, again, other = (environment.reset(seed=seed)[0] for seed in (5, 5, 6))
    assert plain(first) == plain(again) != plain(other)
    environment = turned_back(WorldParallelEnv, early_parallel_ends)
    unseeded = [environment.reset()[0]["agent_0"][2] for _ in range(3)]
    assert unseeded == [0, 1, 2]


# Beginnings, ends and errors.


@pytest.mark.parametrize("kind", [WorldAECEnv, WorldParallelEnv])
def test_actions_outside_of_an_episode_are_refused(kind):
    """W-26"""
    environment = turned_back(kind, lambda: Together([1, 1]))
    actions = (
        [0, 0, None, None] if kind is WorldAECEnv else [dict(agent_0=0, agent_1=0)]
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=r"call reset\(\)"):
            environment.step(actions[0])
        environment.reset()
        for action in actions:
            environment.step(action)
        assert environment.agents == []


def test_who_is_out_steps_with_none():
    """W-25"""
    environment = turned_back(WorldAECEnv, tictactoe_v3.env)
    environment.reset()
    for action in (0, 3, 1, 4, 2):
        environment.step(action)
    for agent, reward in (("player_2", -1), ("player_1", 1)):
        assert environment.agent_selection == agent
        assert environment.last()[1:4] == (reward, True, False)
        with pytest.raises(ValueError, match="None"):
            environment.step(5)
        environment.step(None)
    assert environment.agents == []


def test_behind_an_illegal_move_the_episode_is_over():
    environment = turned_back(WorldAECEnv, tictactoe_v3.env)
    environment.reset()
    environment.step(4)
    with pytest.raises(ValueError, match="player_2 did 4"):
        environment.step(4)
    with pytest.raises(ValueError, match=r"call reset\(\)"):
        environment.step(5)
    environment.reset()
    environment.step(4)


@pytest.mark.parametrize("actions", [{}, {"agent_0": 0}, dict(agent_0=0, agent_2=0)])
def test_every_agent_needs_an_action(actions):
    environment = turned_back(WorldParallelEnv, lambda: Together([2, 2, 1]))
    environment.reset()
    environment.step(dict(agent_0=0, agent_1=0, agent_2=0))
    with pytest.raises(ValueError, match=r"each of \['agent_0', 'agent_1'\]"):
        environment.step(actions)
    environment.step(dict(agent_0=0, agent_1=0))
    assert environment.agents == []


def test_a_reset_in_the_middle_begins_anew():
    environment = turned_back(WorldAECEnv, early_ends)
    environment.reset(seed=1)
    while not environment.terminations["agent_0"]:  # out, and about to be removed
        dead = environment.terminations[environment.agent_selection]
        environment.step(None if dead else 0)
    assert turns(environment, 7) == turns(turned_back(WorldAECEnv, early_ends), 7)


def test_what_nobody_was_shown_is_zeros():
    environment = turned_back(WorldAECEnv, tictactoe_v3.env)
    environment.reset()
    shown = environment.observe("player_2")
    assert environment.observation_space("player_2").contains(shown)
    assert not shown["observation"].any() and not shown["action_mask"].any()


@pytest.mark.parametrize("kind", [WorldAECEnv, WorldParallelEnv])
def test_close_closes_what_is_inside(kind):
    made = []

    def make():
        made.append(Together([1, 1]))
        return made[-1]

    environment = turned_back(kind, make)
    environment.reset()
    environment.close()
    assert [one.closed for one in made] == [0, 1]  # the first one was asked for spaces


# Others may sit in the world.


def test_an_opponent_inside():
    inside = tictactoe_v3.env()
    spaces = inside.observation_space("player_1"), inside.action_space("player_1")

    def make_world(participants, index):
        seats = [*participants, RandomParticipant(9, seed=3)]
        return PettingZooWorld(tictactoe_v3.env, seats, index)

    def make():
        return WorldAECEnv(make_world, *({"player_1": space} for space in spaces))

    api_test(make(), CYCLES)
    games = [turns(make(), seed) for seed in range(20)]
    assert {agent for steps in games for agent, *_ in steps} == {"player_1"}
    assert {steps[-1][2] for steps in games} == {-1, 0, 1}
    marks = np.array(games[0][1][1]["observation"]).sum((0, 1))
    assert marks.tolist() == [1, 1]  # both have moved


@pytest.mark.parametrize("kind", [WorldAECEnv, WorldParallelEnv])
def test_an_environment_of_gymnasium(kind):
    cart = gymnasium.make("CartPole-v1")
    make_cart = partial(gymnasium.make, "CartPole-v1")
    worlds = []

    def make_world(participants, index):
        inside = EnvironmentParticipant(make_cart, index)
        worlds.append(PartnerWorld([inside, *participants]))
        return worlds[0]

    environment = kind(
        make_world,
        {"policy_0": cart.observation_space},
        {"policy_0": cart.action_space},
    )
    observation, _ = cart.reset(seed=3)
    shown = environment.reset(seed=3)
    end, steps, rewards = False, 0, 0.0
    while not end:
        seen = shown[0]["policy_0"] if shown else environment.observe("policy_0")
        np.testing.assert_array_equal(seen, observation)
        observation, _, end, _, _ = cart.step(1)
        steps += 1
        shown = environment.step({"policy_0": 1} if shown else 1)
        rewards += shown[1]["policy_0"] if shown else environment.last()[1]
    assert rewards == steps
    assert (worlds[0].episodes, worlds[0].steps) == (1, steps + 1)  # played to its end
    if kind is WorldAECEnv:
        assert environment.last()[2:4] == (True, False)
        environment.step(None)
    assert environment.agents == []


class Auction(World):
    """Bids of three rounds. Everybody hears of the others', and nobody of the end."""

    def begin(self):
        return True

    @property
    def episode_done(self):
        return self.steps == 3

    def turns(self):
        for seat in range(3):
            bid = self.take(seat, (yield (seat,)))["action"]
            for other in {0, 1, 2} - {seat}:
                self.tell(other, {"observation": np.array([bid]), "reward": bid})


def auction(kind):
    names = [f"bidder_{seat}" for seat in range(3)]
    return kind(
        lambda participants, index: Auction(participants),
        {name: Box(0, 9, (1,), np.int64) for name in names},
        {name: Discrete(5) for name in names},
    )


def test_a_reward_is_of_all_that_was_told_since_the_last_act():
    environment = auction(WorldAECEnv)
    api_test(environment, CYCLES)
    environment.reset()
    rewards = []
    for bid in (1, 2, 3) * 3:
        rewards.append(environment.last()[1])
        environment.step(bid)
    assert rewards == [0, 1, 1 + 2, 2 + 3, 3 + 1, 1 + 2, 2 + 3, 3 + 1, 1 + 2]
    environment = auction(WorldParallelEnv)
    environment.reset()
    bids = {"bidder_0": 1, "bidder_1": 2, "bidder_2": 3}
    assert list(environment.step(bids)[1].values()) == [5, 4, 3]


def test_the_episode_is_over_for_those_who_were_not_told():
    environment = auction(WorldAECEnv)
    environment.reset()
    for _ in range(9):
        assert not any(environment.terminations.values())
        environment.step(1)
    assert environment.terminations == dict.fromkeys(environment.possible_agents, True)
    assert not any(environment.truncations.values())
    environment = auction(WorldParallelEnv)
    environment.reset()
    for left in (3, 3, 0):
        environment.step(dict.fromkeys(environment.agents, 1))
        assert environment.num_agents == left


def test_a_world_shows_what_was_said():
    environment = turned_back(WorldAECEnv, tictactoe_v3.env)
    environment.reset()
    environment.step(4)
    assert "[player_1 in seat 0]" in environment.render()
    assert str(environment) == "tictactoe_v3"


def nim(kind, agents=("first", "second")):
    shown, take = Box(-2, 9, (), np.int64), Discrete(3, start=1)
    return kind(Nim, {a: shown for a in agents}, {a: take for a in agents})


def test_a_game_of_ones_own():
    """Who is first sees the beginning before it acts, also of the next game."""
    api_test(nim(WorldAECEnv), CYCLES)
    environment = nim(WorldAECEnv)
    for game in (0, 1, 2):
        environment.reset(seed=game)
        seen = []
        for _ in environment.agent_iter():
            left, reward, terminated, truncated, _ = environment.last()
            seen.append((int(left), reward))
            environment.step(None if terminated or truncated else 3)
        left = 7 + game
        shown = [(n, 0) for n in (left, left - 3, left - 6) if n > 0]
        assert seen[: len(shown)] == shown
        assert sorted(reward for _, reward in seen[len(shown) :]) == [0, 1]


def test_agents_have_both_spaces():
    spaces = {"a": Discrete(2), "b": Discrete(2)}
    with pytest.raises(ValueError, match=r"of actions for \['a'\]"):
        WorldAECEnv(Nim, spaces, {"a": Discrete(2)})

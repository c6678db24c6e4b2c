"""PettingZoo's games as worlds: what each seat is told, and what counts."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.classic import connect_four_v3, rps_v2, tictactoe_v3
from small_games import (
    NUM_ACTIONS,
    BatchPlayer,
    Chance,
    Failing,
    Made,
    Player,
    RoundRobin,
    Together,
    first_legal,
    plain,
    script,
    told,
)

from distrl.core.errors import ConfigError
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.multi_world import MultiWorld
from distrl.worlds.parallel_world import ParallelWorld
from distrl.worlds.pettingzoo_world import PettingZooWorld
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.reducers import values
from distrl.worlds.registry import create_world

pytestmark = pytest.mark.timeout(30)
ROCK, PAPER, SCISSORS = range(3)
ALL = [1] * NUM_ACTIONS  # a mask


def tictactoe(participants, games=1) -> PettingZooWorld:
    return PettingZooWorld(tictactoe_v3.env, participants, ExampleIndex(games))


def rps(participants, games=1, cycles=3) -> ParallelWorld:
    def make():
        return rps_v2.parallel_env(max_cycles=cycles)

    return ParallelWorld(make, participants, ExampleIndex(games))


def lives(kind, participants, *numbers, games=1, **kwargs):
    world = PettingZooWorld if kind is RoundRobin else ParallelWorld
    return world(lambda: kind(numbers, **kwargs), participants, ExampleIndex(games))


def play(world) -> int:
    """The parleys of an epoch."""
    parleys = 0
    while world.parley():
        parleys += 1
    return parleys


def players(number, seen=None, choose=lambda message: 0):
    return [Player(f"p{seat}", choose, seen) for seat in range(number)]


# W-25.


def test_tictactoe_as_the_seats_see_it():
    """W-25: the moves 0, 3, 1, 4, 2."""
    seen = []
    p1 = Player("p1", script(0, 1, 2), seen)
    p2 = Player("p2", script(3, 4), seen)
    world = tictactoe([p1, p2])
    over = [world.parley() and world.episode_done for _ in range(5)]
    assert over == [False] * 4 + [True]
    assert told(seen, "reward", "episode_done") == [
        ("p1", 0, False),
        ("p2", 0, False),
        ("p1", 0, False),
        ("p2", 0, False),
        ("p1", 0, False),
        ("p2", -1, True),
        ("p1", 1, True),
    ]
    masks = [message["legal_actions"].tolist() for _, message in seen]
    assert masks[0] == [1] * 9
    assert masks[1] == [0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert masks[2] == [0, 1, 1, 0, 1, 1, 1, 1, 1]
    own, other = seen[2][1]["observation"]["observation"].transpose(2, 0, 1)
    assert (own.reshape(9).nonzero()[0], other.reshape(9).nonzero()[0]) == (0, 3)
    assert [m.get("episode") for _, m in seen] == [0, 0, None, None, None, None, None]
    assert not world.parley() and world.epoch_done
    assert (world.steps, world.episodes) == (5, 1)


def test_rock_paper_scissors_as_the_seats_see_it():
    """W-25: 3 cycles of the parallel game."""
    p0 = Player("p0", script(ROCK, SCISSORS, ROCK))
    p1 = Player("p1", script(PAPER, PAPER, ROCK))
    world = rps([p0, p1])
    over = [world.parley() and world.episode_done for _ in range(3)]
    assert over == [False, False, True]
    assert world.environment.agents == []
    nothing = 3
    expected = {p0: ([0, -1, 1, 0], [PAPER, PAPER, ROCK])}
    expected[p1] = ([0, 1, -1, 0], [ROCK, SCISSORS, ROCK])
    for player, (rewards, answers) in expected.items():
        messages = [message for _, message in player.seen]
        assert [message["reward"] for message in messages] == rewards
        shown = [int(message["observation"]) for message in messages]
        assert shown == [nothing, *answers]
        assert [message["truncated"] for message in messages] == [False] * 3 + [True]
        assert not any(message["terminated"] for message in messages)
        assert [message.get("episode") for message in messages] == [0, *[None] * 3]
    assert not world.parley()


# Agents with different ends.


def test_in_a_turn_based_game_each_agent_has_its_own_end():
    seen = []
    world = lives(RoundRobin, players(3, seen), 1, 3, 2, truncated=[2], gift=1.0)
    assert play(world) == 1 + 3 + 2
    fields = "reward", "terminated", "truncated"
    assert told(seen, *fields) == [
        ("p0", 0, False, False),
        ("p1", 1, False, False),
        ("p2", 2, False, False),
        ("p0", 2, True, False),  # its own 0, and two gifts
        ("p1", 101, False, False),
        ("p2", 101, False, False),
        ("p1", 101, False, False),
        ("p2", 1, False, True),
        ("p1", 0, True, False),
    ]
    assert [len(player.acted) for player in world.participants] == [1, 3, 2]
    assert values(world.report())["agent_0/return"] == 2
    for seat in range(3):
        rewards = [m["reward"] for name, m in seen if name == f"p{seat}"]
        assert values(world.report())[f"agent_{seat}/return"] == sum(rewards)


def test_an_agent_that_is_out_from_the_beginning_is_told_so():
    world = lives(RoundRobin, players(2), 0, 1, games=2)
    assert play(world) == 2 and world.episodes == 2
    out, other = world.participants
    assert told(out.seen, "episode_done", "episode") == [
        ("p0", True, 0),
        ("p0", True, 1),
    ]
    assert not out.acted and len(other.acted) == 2


def test_in_a_parallel_game_each_agent_has_its_own_end():
    world = lives(Together, players(3), 1, 3, 2, truncated=[2])
    assert play(world) == 3
    asked = [sorted(actions) for actions in world.environment.actions]
    everyone = ["agent_0", "agent_1", "agent_2"]
    assert asked == [everyone, everyone[1:], everyone[1:2]]
    ends = {}
    for player in world.participants:
        flags = told(player.seen, "terminated", "truncated", "episode_done")
        assert all(flag == (player.id, False, False, False) for flag in flags[:-1])
        ends[player.id] = len(flags), *flags[-1][1:]
    assert ends == {
        "p0": (2, True, False, True),
        "p1": (4, True, False, True),
        "p2": (3, False, True, True),
    }
    assert values(world.report())["agent_2/return"] == 2


# Moves.


@pytest.mark.parametrize("action", [0, 9, -1, None])
def test_an_illegal_move_is_an_error_that_says_what_is_legal(action):
    p2 = Player("p2", script(action, 3, 4))
    world = tictactoe([Player("p1", script(0, 1, 2)), p2])
    assert world.parley()
    legal = r"legal are \[1, 2, 3, 4, 5, 6, 7, 8\]"
    with pytest.raises(ValueError, match=f"player_2 did {action}, {legal}"):
        world.parley()
    assert play(world) == 4  # goes on with another move
    assert values(world.report())["player_2/return"] == -1


@pytest.mark.parametrize("kind", [RoundRobin, Together])
def test_a_mask_may_be_in_the_info(kind):
    p0, p1 = Player("p0", script(2, 0)), Player("p1", script(2, 1))
    world = lives(kind, [p0, p1], 2, 2, mask=[1, 0, 1])
    assert [mask.tolist() for _, mask in told(p0.seen, "legal_actions")] in (
        [],
        [[True, False, True]],
    )
    with pytest.raises(ValueError, match=r"agent_1 did 1, legal are \[0, 2\]"):
        play(world)


@pytest.mark.parametrize("action", [3, -1, None, 0.5, np.array([1]), np.array([0, 1])])
def test_an_action_that_the_game_does_not_have(action):
    """Also where there is no mask, and with whatever NumPy makes of a comparison."""
    for world in (
        rps([Player("p0", script(0, 0)), Player("p1", script(action, 0))], games=1),
        lives(Together, [Player("p0"), Player("p1", script(action))], 2, 2),
        lives(RoundRobin, [Player("p0"), Player("p1", script(action))], 2, 2, mask=ALL),
    ):
        with pytest.raises(ValueError, match=r"_1 did .*, legal are (Discrete|\[0, 1)"):
            play(world)


@pytest.mark.parametrize("action", [1, np.int64(1), np.array(1)])
def test_actions_may_be_numpys(action):
    for kind in (RoundRobin, Together):
        for mask in (None, ALL):
            players = [Player("p0"), Player("p1", script(action, action))]
            world = lives(kind, players, 2, 2, mask=mask)
            play(world)
            assert world.episodes == 1


def test_an_act_needs_an_action():
    class Silent(Player):
        def act(self):
            return {}

    for world in (tictactoe([Silent("p1"), Silent("p2")]), rps(players(1) * 2)):
        world.participants[0].act = dict
        with pytest.raises(RuntimeError, match="expected an action"):
            world.parley()


def test_random_moves_are_legal():
    chance = [RandomParticipant(9, seed=seat) for seat in range(2)]
    world = tictactoe(chance, games=200)
    play(world)
    report = values(world.report())
    assert report["episodes"] == 200
    assert report["player_1/return"] == -report["player_2/return"]  # nobody cheated
    assert (
        report["player_1/wins"] > report["player_1/losses"] > 0
    )  # who begins is ahead


# Metrics.


def test_wins_draws_and_losses():
    won, lost = ([0, 1, 2], [3, 4]), ([0, 1, 8], [3, 4, 5])
    drawn = ([0, 2, 3, 7, 8], [1, 4, 5, 6])
    games = [won, lost, drawn, won]
    moves = [[move for game in games for move in game[seat]] for seat in range(2)]
    world = tictactoe(
        [Player(f"p{seat}", script(*moves[seat])) for seat in range(2)], 4
    )
    play(world)
    assert values(world.report()) == {
        "player_1/return": 0.25,
        "player_1/wins": 0.5,
        "player_1/draws": 0.25,
        "player_1/losses": 0.25,
        "player_2/return": -0.25,
        "player_2/wins": 0.25,
        "player_2/draws": 0.25,
        "player_2/losses": 0.5,
        "episodes": 4,
        "steps": 5 + 6 + 9 + 5,
    }
    world.reset_metrics()
    assert values(world.report()) == {"episodes": 4, "steps": 25}


def test_a_mixture_has_the_metrics_of_each_game():
    chance = [RandomParticipant(9, seed=seat) for seat in range(2)]
    others = [RandomParticipant(7, seed=seat) for seat in range(2)]
    first = tictactoe(chance, games=3)
    second = PettingZooWorld(connect_four_v3.env, others, ExampleIndex(2))
    world = MultiWorld([first, second])
    play(world)
    report = values(world.report())
    for game in (first, second):
        for name, value in values(game.report()).items():
            assert report[f"{game.name}/{name}"] == value
    assert "tictactoe_v3/player_1/wins" in report
    assert "connect_four_v3/player_0/losses" in report


# Games have numbers.


def test_a_game_is_reset_with_the_seed_of_its_number():
    participants, index = players(2), ExampleIndex(3)
    index.lend(range(3))
    world = ParallelWorld(
        lambda: Together([1, 1]), participants, index, lambda number: 100 - number
    )
    assert world.indices() == {"lives": index}
    assert world.spaces(1)[1] is world.environment.action_space("agent_1")
    play(world)
    assert world.environment.seeds == [100, 99, 98]
    assert index.give_back() == ([], [0, 1, 2])  # all were played to their end
    assert told(participants[0].seen[::2], "episode") == [("p0", n) for n in range(3)]


def chances(num_actions, number=2):
    return [Chance(num_actions, seed, f"chance {seed}") for seed in range(number)]


@pytest.mark.parametrize(
    "make_world",
    [
        lambda: tictactoe(chances(9), 10),
        lambda: rps(chances(3), 10),
        lambda: lives(RoundRobin, chances(3, 3), 2, 5, 3, games=10),
        lambda: lives(Together, chances(3, 3), 2, 5, 3, games=10),
    ],
    ids=["tictactoe", "rps", "RoundRobin", "Together"],
)
def test_a_game_is_the_same_alone_and_in_a_batch(make_world):
    """W-23"""
    alone, played = make_world(), make_world()
    together = BatchWorld(played, 4)
    play(alone)
    play(together)
    for one, other in zip(alone.participants, played.participants, strict=True):
        assert sorted(other.games) == list(range(10))
        assert other.games == one.games
    first, second = alone.participants[0].games[0], alone.participants[0].games[1]
    assert first != second
    assert values(together.report()) == pytest.approx(values(alone.report()))
    games = alone.participants[0].games.copy()
    alone.participants[0].games.clear()
    alone.reset()
    play(alone)
    assert alone.participants[0].games == games


def test_games_go_on_where_they_are_until_a_reset():
    world = lives(Together, players(2), 3, 3, games=2)
    assert world.num_episodes == 2
    world.parley()
    world.reset()
    assert (world.steps, world.episodes, world.episode_done) == (0, 0, False)
    assert play(world) == 6
    assert world.environment.seeds == [0, 0, 1]
    assert world.episode_done


# One participant in several seats, and batches.


def test_one_policy_in_both_seats_of_turn_based_games():
    policy = BatchPlayer("policy", first_legal)
    world = BatchWorld(tictactoe([policy, policy], games=3), 3)
    parleys = play(world)
    assert parleys == 7  # the first legal moves win in 7, with 0, 2, 4 and 6
    assert len(policy.calls) == parleys  # one is on turn, in all rows
    for number, messages in enumerate(policy.calls):
        taken = [9 - message["legal_actions"].sum() for message in messages]
        assert taken == [number] * 3
    assert values(world.report())["player_1/wins"] == 1


def test_one_policy_in_all_seats_of_parallel_games():
    """W-24: each seat acts on its own view, once for all rows."""
    policy = BatchPlayer("policy", lambda message: int(message["observation"][0]))
    world = BatchWorld(lives(Together, [policy] * 3, 2, 2, 2, games=4), 4)
    assert play(world) == 2
    shown = [[plain(m["observation"]) for m in messages] for messages in policy.calls]
    assert shown == [
        [[seat, step, game] for game in range(4)]
        for step in range(2)
        for seat in range(3)
    ]
    for row in world.rows:
        actions = {f"agent_{seat}": seat for seat in range(3)}
        assert row.environment.actions == [actions, actions]


# The order of their life.


@pytest.mark.parametrize("kind", [RoundRobin, Together])
def test_every_environment_is_closed_once(kind):
    made = Made(lambda: kind([2, 2]))
    world = PettingZooWorld if kind is RoundRobin else ParallelWorld
    rows = BatchWorld(world(made, players(2), ExampleIndex(5)), 3)
    rows.parley()
    assert len(made.all) == 4 and len({id(row.environment) for row in rows.rows}) == 3
    for _ in range(2):
        rows.shutdown()
        assert [environment.closed for environment in made.all] == [1] * 4


def test_an_environment_is_closed_whatever_participants_do():
    world = lives(Together, [Failing("p0"), Player("p1")], 1, 1)
    with pytest.raises(RuntimeError, match="p0 does not end"):
        world.shutdown()
    world.shutdown()
    assert world.environment.closed == 1


@pytest.mark.parametrize("number", [0, 1, 3])
def test_each_agent_needs_a_participant(number):
    made = Made(lambda: Together([1, 1]))
    text = rf"for each of \['agent_0', 'agent_1'\], got {number}"
    with pytest.raises(ValueError, match=text):
        ParallelWorld(made, players(number), ExampleIndex(1))
    assert made.all[0].closed == 1


# By name.


def make_chance():
    return [RandomParticipant(3, seed=seat) for seat in range(2)]


@pytest.mark.parametrize(
    ("name", "kind", "actions"),
    [
        ("classic.tictactoe_v3", PettingZooWorld, 9),
        ("classic.connect_four_v3", PettingZooWorld, 7),
        ("classic.rps_v2", ParallelWorld, 3),  # turn-based inside, and played at once
    ],
)
def test_worlds_by_name(name, kind, actions):
    def make():
        return [RandomParticipant(actions, seed=seat) for seat in range(2)]

    with create_world(f"pettingzoo:{name}", make, 2) as world:
        assert type(world) is kind and world.name == name.partition(".")[2]
        play(world)
        assert world.episodes == 2
        seen, done = world.spaces(1)
        assert done.n == actions and seen == world.spaces(0)[0]


@pytest.mark.parametrize(
    "name", ["nobody.knows_v0", "classic.tictactoe_v0", "classic", "utils", ""]
)
def test_a_game_that_pettingzoo_does_not_have(name):
    with pytest.raises(ConfigError, match=f"pettingzoo:{name}: "):
        create_world(f"pettingzoo:{name}", make_chance)


def test_a_game_by_name_needs_a_participant_for_each_agent():
    with pytest.raises(ValueError, match="got 1"):
        create_world("pettingzoo:classic.rps_v2", lambda: make_chance()[:1])

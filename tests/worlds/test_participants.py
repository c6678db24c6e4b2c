"""Who sits in worlds: chance, humans, policies, scripts, environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from examples import Life, Repeater, Speaker, each_once, play_epoch

from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.environment_participant import EnvironmentParticipant
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.human_participant import HumanParticipant
from distrl.worlds.multi_agent_world import MultiAgentWorld
from distrl.worlds.participant import Participant, ScriptedParticipant
from distrl.worlds.partner_world import PartnerWorld
from distrl.worlds.policy_participant import PolicyParticipant
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.reducers import Sum, values

pytestmark = pytest.mark.timeout(30)


def actions(participant, number=50):
    return [participant.act()["action"] for _ in range(number)]


# What all have in common.


def test_what_nobody_has_to_say():
    """Faults 16, 17, 24"""
    plain = Participant()
    assert (plain.id, plain.observation, plain.num_episodes) == (
        "Participant",
        {},
        None,
    )
    assert (plain.claim(), plain.epoch_done, plain.indices()) == (True, False, {})
    with pytest.raises(NotImplementedError, match="Participant"):
        plain.act()


def test_a_copy_shares_metrics_and_sees_for_itself():
    original = Repeater()
    original.observe({"observation": 3})
    copy = original.share(0)
    copy.metrics.add("x", Sum(1))
    copy.observe({"observation": 4})
    assert original.report() == {"x": Sum(1)}
    assert original.act() == {"action": 3}
    assert original.share(1).observation == {}


def test_resets():
    one = Repeater()
    one.metrics.add("x", Sum(1))
    one.observe({"observation": 3})
    one.reset()
    assert (one.observation, one.report()) == ({}, {"x": Sum(1)})
    report = one.report()
    one.reset_metrics()
    assert (one.report(), report) == ({}, {"x": Sum(1)})


# A script.


def test_a_script_is_said_in_turn():
    script = ScriptedParticipant([{"action": n} for n in range(3)])
    assert actions(script, 4) == [0, 1, 2, 0]
    assert actions(script.share(0), 2) == [0, 1]
    script.reset()
    assert actions(script, 1) == [0]


def test_a_script_says_something():
    with pytest.raises(ValueError, match="script"):
        ScriptedParticipant([])
    with pytest.raises(TypeError, match="list of messages, got {'action': 1}"):
        ScriptedParticipant({"action": 1})


# Chance.


def test_every_action_comes():
    assert set(actions(RandomParticipant(4), 100)) == {0, 1, 2, 3}
    assert set(actions(RandomParticipant(3, first=5), 100)) == {5, 6, 7}


def test_only_legal_actions_come():
    player = RandomParticipant(4, first=10)
    player.observe({"legal_actions": np.array([0, 1, 0, 1])})
    assert set(actions(player)) == {11, 13}


@pytest.mark.parametrize(
    "legal", [np.zeros(4, bool), np.ones(3, bool), np.ones((4, 1), bool)], ids=str
)
def test_masks_that_are_none(legal):
    player = RandomParticipant(4, name="dice")
    player.observe({"legal_actions": legal})
    with pytest.raises(ValueError, match="dice: expected legal_actions"):
        player.act()


def test_no_actions():
    with pytest.raises(ValueError, match="got 0"):
        RandomParticipant(0)


def test_the_seed_decides():
    assert actions(RandomParticipant(4, 1)) == actions(RandomParticipant(4, 1))
    assert actions(RandomParticipant(4, 1)) != actions(RandomParticipant(4, 2))
    player = RandomParticipant(4, 1)
    first = actions(player)
    player.reset()
    assert actions(player) == first


def test_rows_have_chances_of_their_own():
    player = RandomParticipant(4, 1)
    rows = [actions(player.share(row)) for row in (0, 1, 0)]
    assert rows[0] == rows[2] != rows[1]
    assert actions(player) not in rows


def test_an_episode_is_the_same_in_every_row():
    def played(player, episode):
        player.observe({"episode": episode})
        return actions(player)

    player = RandomParticipant(4, 1)
    first = played(player.share(0), 7)
    assert played(player.share(3), 7) == first == played(player, 7)
    assert played(player, 8) != first
    assert played(RandomParticipant(4, 2), 7) != first


# Somebody.


class Terminal:
    """Answers with given lines."""

    def __init__(self, *lines):
        self.lines, self.asked, self.said = list(lines), [], []

    def ask(self, prompt):
        self.asked.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def human(self, **kwargs):
        return HumanParticipant("you", ask=self.ask, say=self.said.append, **kwargs)


def test_a_human_is_shown_and_asked():
    terminal = Terminal(" 3 ")
    human = terminal.human()
    human.observe({"observation": 5, "reward": 1.0})
    assert human.act() == {"action": 3}
    assert terminal.said == ["observation: 5\nreward: 1.0"]
    assert terminal.asked == ["you, your action: "]


def test_a_human_is_asked_until_the_action_is_legal():
    terminal = Terminal("left", "1", "-1", "", "2")
    human = terminal.human(show=lambda message: "a board")
    human.observe({"legal_actions": [True, False, True]})
    assert human.act() == {"action": 2}
    assert terminal.said == [
        "a board",
        "expected a number, got 'left'",
        "1 is not one of [0, 2]",
        "-1 is not one of [0, 2]",
        "expected a number, got ''",
    ]
    assert terminal.asked == ["you, your action [0, 2]: "] * 5


def test_a_human_may_be_told_how_many_actions_there_are():
    terminal = Terminal("3", "-1", "2", "2", "1")
    human = terminal.human(num_actions=3)
    human.observe({"observation": 1})
    assert human.act() == {"action": 2}
    human.observe({"observation": 1, "legal_actions": [False, True, False]})
    assert human.act() == {"action": 1}
    assert terminal.asked[0] == "you, your action [0, 1, 2]: "
    assert "2 is not one of [1]" in terminal.said


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_human_is_not_asked_behind_the_end(end):
    terminal = Terminal()
    human = terminal.human()
    human.observe({"observation": 1, end: True})
    assert human.act() == {}
    assert terminal.asked == []


def test_a_human_leaves():
    with pytest.raises(EOFError):
        Terminal().human().act()


# A policy.


class Plus:
    """Adds what it remembers, the number of steps before, to what it sees."""

    def __init__(self, core_spec=()):
        self.core_spec = core_spec
        self.batches, self.closed = [], 0

    def step(self, observation, core_state):
        self.batches.append(len(observation["x"]))
        if self.core_spec == ():
            assert core_state == ()
            return observation["x"], ()
        count = core_state["count"]
        return observation["x"] + count, {"count": count + 1}

    def close(self):
        self.closed += 1


COUNT = {"count": ArraySpec((), np.float32)}


def view(number, **more):
    return {"observation": {"x": np.float32(number)}, **more}


def test_a_policy_acts_on_its_observation():
    policy = Plus()
    participant = PolicyParticipant(policy)
    participant.observe(view(4))
    assert participant.act() == {"action": 4.0}
    assert np.shape(participant.act()["action"]) == ()


def test_one_step_for_all_rows():
    policy = Plus()
    acts = PolicyParticipant(policy).batch_act([view(1), {}, view(3)])
    assert acts == [{"action": 1.0}, {}, {"action": 3.0}]
    assert policy.batches == [2]


def test_no_rows_no_step():
    policy = Plus()
    assert PolicyParticipant(policy).batch_act([{}, {}]) == [{}, {}]
    assert policy.batches == []


def test_each_row_has_a_memory_that_begins_with_the_episode():
    participant = PolicyParticipant(Plus(COUNT))

    def answers(*views):
        return [act.get("action") for act in participant.batch_act(views)]

    assert answers(view(0, episode=0), view(10, episode=1)) == [0, 10]
    assert answers(view(0), {}) == [1, None]
    assert answers(view(0), view(10)) == [2, 11]
    assert answers(view(0, episode=2), view(10)) == [0, 12]
    participant.reset()
    assert answers(view(0), view(10)) == [0, 10]


def test_what_a_policy_remembers_is_in_the_spec_of_its_type():
    participant = PolicyParticipant(Plus(COUNT))
    participant.batch_act([view(0)])
    state = participant._state(0, {})
    assert map_nest(lambda leaf: leaf.dtype, state) == {"count": np.float32}


def test_copies_leave_the_policy_open():
    """Fault 27"""
    policy = Plus()
    participant = PolicyParticipant(policy)
    participant.share(0).shutdown()
    participant.share(0).share(1).shutdown()
    assert policy.closed == 0
    participant.shutdown()
    assert policy.closed == 1


def test_copies_have_memories_of_their_own():
    participant = PolicyParticipant(Plus(COUNT))
    participant.observe(view(0))
    assert actions(participant, 2) == [0, 1]
    copy = participant.share(0)
    copy.observe(view(0))
    assert actions(copy, 2) == [0, 1]
    assert actions(participant, 1) == [2]


def test_one_policy_in_two_seats_of_a_batch():
    """W-24: it is asked once a seat, for all rows."""
    policy = Plus()

    class Player(PolicyParticipant):
        def observe(self, message):
            action = message.get("action", 0)
            super().observe({"observation": {"x": np.float32(action + 1)}})

        def share(self, row):
            shared = super().share(row)
            shared.observe({"action": 10 * row})
            return shared

    player = Player(policy)
    world = BatchWorld(MultiAgentWorld([player, player]), 3)
    world.parley()
    assert policy.batches == [3, 3]
    said = [[act["action"] for act in row] for row in world.acts]
    assert said == [[1, 2], [11, 12], [21, 22]]


# An environment.


class Steps(gymnasium.Env):
    """Ends after seed + 1 steps, is cut after 3; the reward is the action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (), np.float32)
    action_space = gymnasium.spaces.Discrete(5)
    made = 0
    closed = 0

    def __init__(self, statistics=False):
        Steps.made += 1
        self._statistics = statistics

    def reset(self, *, seed=None, options=None):
        self._seed, self._step = seed, 0
        return np.float32(0), {"seed": seed}

    def step(self, action):
        self._step += 1
        terminated = self._step > self._seed
        truncated = not terminated and self._step == 3
        over = terminated or truncated
        info = {"episode": {"r": -7.0, "l": 99}} if over and self._statistics else {}
        return np.float32(self._step), action, terminated, truncated, info

    def close(self):
        Steps.closed += 1


@pytest.fixture(autouse=True)
def count_environments():
    Steps.made = Steps.closed = 0


def environment(number, **kwargs):
    return EnvironmentParticipant(Steps, ExampleIndex(number), **kwargs)


def heard(world, parleys):
    """What seat 1 hears in so many parleys, without senders and info."""
    found = []
    for _ in range(parleys):
        assert world.parley()
        message = dict(world.acts[0])
        found.append((message.get("episode"), *(message[name] for name in NAMES)))
    return found


NAMES = ("observation", "reward", "terminated", "truncated", "episode_done")


def test_an_environment_shows_each_observation():
    world = PartnerWorld([environment(2), ScriptedParticipant([{"action": 2}])])
    assert heard(world, 5) == [
        (0, 0, 0.0, False, False, False),
        (None, 1, 2.0, True, False, True),
        (1, 0, 0.0, False, False, False),
        (None, 1, 2.0, False, False, False),
        (None, 2, 2.0, True, False, True),
    ]
    assert world.epoch_done and not world.parley()


def test_an_episode_may_be_cut():
    world = PartnerWorld(
        [environment(1, seed_of=lambda n: n + 50), ScriptedParticipant([{"action": 1}])]
    )
    assert heard(world, 4)[-1] == (None, 3, 1.0, False, True, True)
    assert world.acts[0]["info"] == {}


def test_each_episode_has_a_seed():
    world = PartnerWorld(
        [environment(1, seed_of=lambda n: n + 5), ScriptedParticipant([{"action": 1}])]
    )
    world.parley()
    assert world.acts[0]["info"] == {"seed": 5}


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_metrics_of_environments(batch_size):
    player = ScriptedParticipant([{"action": 2}])
    world = BatchWorld(PartnerWorld([environment(5), player]), batch_size)
    for _ in range(2):
        play_epoch(world, 5 * 4)
        report = world.report()
        returns = dict(report["returns"].entries)
        assert returns == {0: 2, 1: 4, 2: 6, 3: 6, 4: 6}
        assert values(report) == {
            "returns": 24 / 5,
            "length": 12 / 5,
            "env_steps": 12,
            "episodes": 5,
            "steps": 12 + 5,
        }
        world.reset()


def test_statistics_of_gymnasium_are_taken():
    """They know of rewards before they were changed."""
    index = ExampleIndex(1)
    teacher = EnvironmentParticipant(lambda: Steps(statistics=True), index)
    world = PartnerWorld([teacher, ScriptedParticipant([{"action": 2}])])
    play_epoch(world, 2)
    report = values(world.report())
    assert [report[n] for n in ("returns", "length", "env_steps")] == [-7, 99, 99]


def test_environments_are_made_when_they_are_needed():
    player = ScriptedParticipant([{"action": 2}])
    world = BatchWorld(PartnerWorld([environment(3), player]), 4)
    assert Steps.made == 0
    world.parley()
    assert Steps.made == 3  # a row without an episode has none, nor the original
    world.reset()
    world.parley()
    assert Steps.made == 3
    world.shutdown()
    world.shutdown()
    assert Steps.closed == 3


def test_a_reset_amid_a_game():
    world = PartnerWorld([environment(3), ScriptedParticipant([{"action": 2}])])
    heard(world, 3)
    world.reset()
    assert heard(world, 1) == [(0, 0, 0.0, False, False, False)]
    play_epoch(world, 9)
    assert {n for n, _ in world.report()["returns"].entries} == set(each_once(3))


def test_an_environment_wants_actions():
    world = PartnerWorld([environment(3, name="env"), ScriptedParticipant([{"x": 2}])])
    with pytest.raises(RuntimeError, match="env: expected an action"):
        world.parley()


def test_an_environment_acts_in_episodes_only():
    with pytest.raises(RuntimeError, match="claim"):
        environment(3).act()


def test_a_human_plays_to_the_end():
    terminal = Terminal("4")
    world = PartnerWorld([environment(1), terminal.human()])
    assert play_epoch(world, 2) == 2
    assert values(world.report())["returns"] == 4
    assert len(terminal.asked) == 1


def test_random_play_does_not_depend_on_rows():
    returns = []
    for batch_size in (1, 3):
        player = RandomParticipant(5, seed=3)
        world = BatchWorld(PartnerWorld([environment(6), player]), batch_size)
        play_epoch(world, 24)
        returns.append(sorted(world.report()["returns"].entries))
    assert returns[0] == returns[1]
    assert len({reached for _, reached in returns[0]}) > 1


def test_gymnasium_itself():
    index = ExampleIndex(2)
    teacher = EnvironmentParticipant(lambda: gymnasium.make("CartPole-v1"), index)
    with PartnerWorld([teacher, RandomParticipant(2)]) as world:
        play_epoch(world, 200)
        report = values(world.report())
    assert report["returns"] == report["length"] > 1
    assert report["episodes"] == 2


def test_the_examples_of_these_tests():
    """Speakers and lives are what other tests look at."""
    speaker, life = Speaker("A"), Life()
    speaker.observe({"action": "hello"})
    assert speaker.events == ["A observes hello"]
    life.share(0).shutdown()
    assert life.asked == {"copy shutdown": 1}

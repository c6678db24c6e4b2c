"""Games of several players look like environments of one of them."""

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from nim import Nim

from distrl.agents.opponents import RandomOpponents
from distrl.agents.world_environments import WorldEnvironments
from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
from distrl.worlds.executable_world import ExecutableWorld

pytestmark = pytest.mark.timeout(60)
SEEDS = EnvironmentSeeds(3, "actor", 0)


class Recorded(RandomOpponents):
    """Takes one stone each time, and notes what it was asked and told."""

    def __init__(self, spec, num_games, seed):
        super().__init__(spec, num_games, seed)
        self.asked, self.begun, self.loaded, self.closed = [], [], [], 0

    def begin(self, game, seed):
        self.begun.append(game)

    def act(self, games, messages):
        stones = [int(m["observation"]["observation"][0]) for m in messages]
        self.asked.append((list(games), stones))
        return [0] * len(games)

    def load(self, version, parameters):
        self.loaded.append(version)

    def close(self):
        self.closed += 1


def stones_of(observation):
    return observation["observation"][:, 0].astype(int).tolist()


def test_a_step_is_the_move_of_one_side_and_the_answer_of_the_other():
    with WorldEnvironments(Nim, 4, SEEDS, opponents=Recorded) as environment:
        opponents = environment._opponents
        observation, _ = environment.reset()
        # In seat 1 the opponent has moved already.
        first = stones_of(observation)
        assert opponents.begun == [0, 1, 2, 3]
        second = [n for n in range(4) if environment._games[n].learning == 1]
        assert 0 < len(second) < 4
        assert opponents.asked == [(second, [first[n] + 1 for n in second])]
        step = environment.step(np.zeros(4, np.int64))
        assert stones_of(step.observation) == [n - 2 for n in first]
        assert not step.reward.any() and not step.terminated.any() and not step.info
        assert len(opponents.asked) == 2 and opponents.asked[1][0] == [0, 1, 2, 3]


class Rounds(ExecutableWorld):
    """The same game, of its own making."""

    spaces = Nim.spaces

    def init_world(self):
        self.stones = 5 + self.number % 4

    def show(self, seat):
        mask = np.array([self.stones > 0, self.stones > 1], np.int8)
        seen = {"action_mask": mask, "observation": np.float32([self.stones])}
        return {"observation": seen, "legal_actions": mask.astype(bool)}

    def execute(self, seat, act):
        self.stones -= int(act["action"]) + 1

    def perceive(self, seat, actor, act):
        if not self.over(act):
            return self.show(seat)
        reward = 1.0 if seat == actor else -1.0
        return {**self.show(seat), "reward": reward, "terminated": True}

    def over(self, act):
        return self.stones == 0


def test_an_executable_world_is_learnt_like_any_other():
    runs = []
    for game in (Nim, Rounds):
        with WorldEnvironments(game, 4, SEEDS, opponents=Recorded) as environment:
            rows, returns = play(environment, 60, take_one)
            runs.append((rows, returns, environment._opponents.asked))
    assert str(runs[0]) == str(runs[1])
    assert {1.0, -1.0} == set(runs[1][1])


def play(environment, steps, policy):
    """The rows of every slot: stones, action, reward, terminated, was reset."""
    observation, _ = environment.reset()
    resetting = np.zeros(environment.num_envs, bool)
    rows, returns = [], []
    for _ in range(steps):
        action = policy(observation)
        step = environment.step(action)
        rows.append((stones_of(observation), action, *step[1:4], resetting))
        if "_episode_return" in step.info:
            found = step.info["episode_return"][step.info["_episode_return"]]
            returns += found.tolist()
        observation, resetting = step.observation, step.terminated | step.truncated
    return rows, returns


def take_one(observation):
    return np.zeros(len(observation["observation"]), np.int64)


def test_games_end_as_episodes_do():
    """With one stone a move the parity of the stones decides."""
    with WorldEnvironments(Nim, 3, SEEDS, opponents=Recorded) as environment:
        rows, returns = play(environment, 60, take_one)
    for slot in range(3):
        episode = []
        for stones, _, reward, terminated, truncated, resetting in rows:
            assert not truncated[slot]
            if resetting[slot]:  # the row of the last observation: nothing is done
                assert stones[slot] == 0 and not reward[slot] and not terminated[slot]
                continue
            episode.append(stones[slot])
            assert (reward[slot] != 0) == terminated[slot]
            if terminated[slot]:
                assert episode == list(range(episode[0], 0, -2))
                # who sees an odd number takes the last one
                assert reward[slot] == (1.0 if episode[0] % 2 else -1.0)
                episode = []
    assert len(returns) > 30 and set(returns) == {1.0, -1.0}


def test_the_seats_take_turns():
    with WorldEnvironments(Nim, 2, SEEDS, opponents=Recorded) as environment:
        environment.reset()
        seen = [[], []]
        for _ in range(40):
            for slot, game in enumerate(environment._games):
                seen[slot].append(game.learning)
            environment.step(np.zeros(2, np.int64))
    for seats in seen:
        changes = [b for a, b in zip(seats, seats[1:], strict=False) if a != b]
        assert len(changes) > 4 and set(seats) == {0, 1}


def test_the_same_seeds_give_the_same_games():
    def run(seeds, **again):
        with WorldEnvironments(Nim, 4, seeds) as environment:
            if again:
                environment.reset(**again)
            rows, _ = play(environment, 40, take_one)
            return [(stones, reward.tolist()) for stones, _, reward, *_ in rows]

    assert run(SEEDS) == run(SEEDS)
    assert run(SEEDS) != run(EnvironmentSeeds(4, "actor", 0))


def test_evaluations_have_opponents_of_their_own():
    judged = EnvironmentSeeds(3, "evaluation", 0)
    for seeds, kind in ((SEEDS, Recorded), (judged, RandomOpponents)):
        with WorldEnvironments(Nim, 1, seeds, opponents=Recorded) as environment:
            assert type(environment._opponents) is kind


def test_opponents_hear_of_parameters_and_are_closed_once():
    environment = WorldEnvironments(Nim, 1, SEEDS, opponents=Recorded)
    environment.load_parameters(7, np.zeros(1, np.uint8))
    environment.close()
    environment.close()
    assert environment._opponents.loaded == [7]
    assert environment._opponents.closed == 1


def test_a_reset_of_some_slots_leaves_the_others_alone():
    with WorldEnvironments(Nim, 3, SEEDS, opponents=Recorded) as environment:
        environment.reset()
        step = environment.step(np.zeros(3, np.int64))
        mask = np.array([False, True, False])
        observation, _ = environment.reset(options={"reset_mask": mask})
    assert stones_of(observation)[0] == stones_of(step.observation)[0]
    assert stones_of(observation)[2] == stones_of(step.observation)[2]
    assert stones_of(observation)[1] >= 4


def test_actions_of_another_shape_are_refused():
    with WorldEnvironments(Nim, 3, SEEDS) as environment:
        environment.reset()
        with pytest.raises(ValueError, match=r"\[3\], got \[2\]"):
            environment.step(np.zeros(2, np.int64))


def test_games_in_which_the_learning_seat_is_not_asked_are_passed_over():
    game = partial(Nim, asked=(0,))
    with WorldEnvironments(game, 2, SEEDS, opponents=Recorded) as environment:
        for _ in range(5):
            environment.reset()
            assert [one.learning for one in environment._games] == [0, 0]


class Decided(Nim):
    """Is over before anybody has acted."""

    def turns(self):
        self.stones, self._over = 0, True
        return
        yield


class Silent(Nim):
    """Goes on for ever, and asks nobody."""

    def turns(self):
        return
        yield


@pytest.mark.parametrize("game, what", [(Decided, "games"), (Silent, "parleys")])
def test_a_game_that_asks_nobody_is_told(game, what):
    with WorldEnvironments(game, 2, SEEDS, opponents=Recorded) as environment:
        with pytest.raises(RuntimeError, match=f"nim: nobody .*1000 {what}"):
            environment.reset()


class Lopsided(Nim):
    def spaces(self, seat):
        seen, done = super().spaces(seat)
        return seen, spaces.Discrete(2 + seat)


def test_seats_that_differ_cannot_share_a_policy():
    with pytest.raises(ConfigError, match="seat 1 has .*one policy cannot learn"):
        WorldEnvironments(Lopsided, 1, SEEDS)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="num_envs 0"):
        WorldEnvironments(Nim, 0, SEEDS)

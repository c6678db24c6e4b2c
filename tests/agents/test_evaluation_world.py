"""Numbered episodes: each once, the same in any number of slots and processes."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from distrl import configurables
from distrl.agents.evaluation_world import (
    MAX_SLOTS,
    EvaluationWorld,
    num_slots,
    returns_of,
)
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.core.errors import ConfigError
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.evaluate import find_checkpoint, make_world
from distrl.learners.learning_session import LearningSession
from distrl.worlds.example_index import ExampleIndex

CONFIG = """
Experiment.agent = @ApexAgent()
gymnasium_environment.id = "CartPole-v1"
StopConditions.max_env_steps = 1000
"""


class Seeded(gymnasium.Env):
    """Its length and its rewards follow from the seed of the reset; a third of its
    steps end a life."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2 + int(self.np_random.integers(6))
        return np.float32([self.left]), {}

    def step(self, action):
        self.left -= 1
        reward = float(self.np_random.integers(10)) + action
        return np.float32([self.left]), reward, self.left == 0, False, {}


class Policy:
    """Its action follows from what is seen; notes where episodes began."""

    def __init__(self):
        self.began, self.closed = 0, 0

    def act(self, observation, began):
        self.began += int(began.sum())
        return (observation[:, 0] % 2).astype(np.int64)

    def close(self):
        self.closed += 1


def returns(num_slots, episodes=23, epochs=1, policy=None):
    environment = SerialVectorEnvironment(Seeded, num_slots)
    index = ExampleIndex(episodes)
    seeds = [1000 + number for number in range(episodes)]
    found = []
    policy = policy or Policy()
    with EvaluationWorld(environment, policy.act, index, seeds, policy.close) as world:
        for _ in range(epochs):
            parleys = 0
            while world.parley():
                parleys += 1
                assert parleys < 1000
            assert world.epoch_done and not world.parley()
            assert world.episodes == episodes == world.num_episodes
            report = world.report()
            entries = dict(report["returns"].entries)
            assert len(report["returns"].entries) == len(entries) == episodes
            assert report["env_steps"].value >= 2 * episodes
            found.append([entries[number] for number in range(episodes)])
            world.reset()
    return found


@pytest.mark.timeout(60)
def test_episodes_are_the_same_in_any_number_of_slots():
    (alone,) = returns(1)
    assert len(set(alone)) > 10
    for slots in (2, 7, 23, 40):
        assert returns(slots) == [alone]


@pytest.mark.timeout(60)
def test_an_epoch_can_be_played_again():
    first, second = returns(5, epochs=2)
    assert first == second


def test_the_policy_hears_where_episodes_begin_and_is_closed():
    policy = Policy()
    returns(1, episodes=3, policy=policy)
    assert policy.began == 3 and policy.closed == 1


def test_slots_act_in_batches_and_few_are_idle_at_the_end():
    assert num_slots(100, 1) == num_slots(100, 2) + 3 == MAX_SLOTS
    assert num_slots(3, 2) == 1 and num_slots(1000, 2) == MAX_SLOTS


@pytest.fixture
def run_dir(tmp_path):
    """A run of no steps, with a checkpoint of its first parameters."""
    path = tmp_path / "config.gin"
    path.write_text(CONFIG)
    agent = configurables.read_experiment(str(path)).agent
    session = LearningSession(agent.model, agent.environment_spec(), 0)
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(0, session.state(), {"learner_steps": 0, "run": "not shown"})
    session.close()
    return tmp_path


def evaluate(run_dir, **flags):
    """Exit code, what was printed, and complaints of the program."""
    words = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", "distrl.evaluate", f"--run_dir={run_dir}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(300)
def test_evaluations_are_the_same_with_any_number_of_workers(run_dir):
    code, alone, _ = evaluate(run_dir, episodes=21, seed=3)
    assert code == 0 and evaluate(run_dir, episodes=21, seed=3, num_workers=2)[:2] == (
        code,
        alone,
    )
    found = json.loads(alone)
    assert len(found["returns"]) == found["episodes"] == 21
    assert found["mean_return"] == np.mean(found["returns"])
    assert found["min_return"] == min(found["returns"]) < found["max_return"]
    assert found["counters"] == {"learner_steps": 0}


@pytest.mark.timeout(60)
def test_environments_live_with_their_worker(run_dir):
    """Wherever those of actors live: so many processes play as were asked for."""
    (checkpoint,) = (run_dir / "checkpoints").glob("0*")
    played = {}
    for back_end in ("Serial", "SharedMemory"):
        config = run_dir / f"{back_end}.gin"
        kind = f"ApexAgent.environment_factory = @{back_end}VectorEnvironment"
        config.write_text(CONFIG + kind)
        before = set(psutil.Process().children())
        with make_world(config, checkpoint, 9, 3, 1, 0) as world:
            while world.parley():
                pass
            assert set(psutil.Process().children()) == before
            played[back_end] = returns_of(world.report())
    assert played["Serial"] == played["SharedMemory"] and len(played["Serial"]) == 9


@pytest.mark.timeout(120)
def test_bad_input_of_a_worker_is_told_as_it_is(run_dir):
    (run_dir / "config.gin").write_text("Experiment.agent = @NoAgent()")
    code, printed, said = evaluate(run_dir, num_workers=2)
    (line,) = [line for line in said.splitlines() if line.startswith("evaluate:")]
    assert (code, printed) == (2, "") and "NoAgent" in line


def test_checkpoints_have_names_and_paths(run_dir, monkeypatch):
    (path,) = (run_dir / "checkpoints").glob("0*")
    for name in ("newest", path.name, str(path)):
        assert find_checkpoint(run_dir, name) == path
    monkeypatch.chdir(run_dir)
    relative = path.relative_to(run_dir)
    assert find_checkpoint(run_dir, str(relative)).resolve() == path.resolve()
    for name in ("best", "000000000001", str(run_dir / "nowhere")):
        with pytest.raises(ConfigError, match=f"--checkpoint: .* no {name} checkpoint"):
            find_checkpoint(run_dir, name)


@pytest.mark.timeout(60)
def test_a_run_without_checkpoints_is_told(run_dir):
    code, printed, said = evaluate(run_dir, checkpoint="best")
    assert (code, printed) == (2, "") and "no best checkpoint" in said

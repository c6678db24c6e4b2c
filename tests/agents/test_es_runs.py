"""Whole runs of evolution strategies as threads: they learn, and the books balance."""

from functools import partial

import gymnasium
import numpy as np
import pytest

from distrl.agents.es_agent import ESAgent
from distrl.agents.settings import Learning, Rounds
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.evolution_session import ESSettings
from distrl.models.es import ESModel

PAIRS = 4  # of each actor
BIG = 10_000  # numbers of a table, far more than there are parameters

pytestmark = pytest.mark.timeout(90)


def short_cartpole() -> gymnasium.Env:
    """As long for a policy that has learnt as for one that has not: a round that is
    begun behind the last step must end within the time for shutting down."""
    return gymnasium.make("CartPole-v1", max_episode_steps=40, disable_env_checker=True)


def make_es(**settings):
    """Evolution strategies with everything small."""
    return ESAgent(
        partial(SerialVectorEnvironment, short_cartpole),
        ESModel((8,)),
        num_envs=4,
        rounds=Rounds(**({"evaluation_period_secs": 1e6} | settings)),
        evolution=ESSettings(PAIRS, noise_table_size=BIG, learning_rate=0.05),
        learning=Learning(),
    )


def check_books(summary):
    """Each env step was sent, received and trained on, once."""
    for name in ("experience", "batches"):
        counts = summary["channels"][name]
        assert counts["lost"] == counts["duplicates"] == 0, (name, counts)
        assert counts["sent"] == counts["received"] == summary["env_steps"]
    assert summary["rows"]["trained"] == summary["env_steps"]
    assert summary["rounds"]["stale_rows"] == 0


def newest(run):
    """The arrays of its last checkpoint."""
    store = CheckpointStore(run.run_dir / "checkpoints")
    return store.load(store.newest())[0]


def test_two_memories_and_three_actors(make_run):
    run = make_run(num_memories=2, num_actors=3, max_learner_steps=6)
    run.start(make_es())
    summary = run.join_well(60.0)
    check_books(summary)
    steps = summary["learner_steps"]
    assert steps >= 6 and summary["rounds"]["rounds"] == steps
    assert summary["episodes"] == 2 * PAIRS * 3 * steps
    for index in (0, 1):
        assert run.tasks[f"memory/{index}"].counters.get("inserted") > 0
    arrays = newest(run)
    (count,) = (a for name, a in arrays.items() if name.endswith("/count"))
    assert int(count) == summary["env_steps"]  # no observation twice, none left out
    assert not any(array.size >= BIG for array in arrays.values())  # no noise in it
    assert (run.run_dir / "export").is_dir()


def test_an_evaluation_ends_the_run_that_reached_its_target(make_run):
    run = make_run(num_actors=1, target_return=5.0)
    run.start(make_es(evaluation_period_secs=0.2, evaluation_episodes=3))
    summary = run.join_well(60.0)
    check_books(summary)
    assert summary["stop_reason"].startswith("target_return=5.0 reached")
    assert (run.run_dir / "checkpoints" / "best").is_dir()
    assert np.isfinite(run.tasks["learner/0"].gauges["gradient_norm"])

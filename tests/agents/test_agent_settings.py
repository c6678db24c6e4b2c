"""Settings of the agents: what they compute, and what they refuse."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from local_run import make_agent

from distrl.agents import apex_agent
from distrl.agents.settings import Acting, Learning, Replay
from distrl.cluster.spec import ClusterSpec
from distrl.core.errors import ConfigError


def test_epsilons_of_the_paper():
    epsilons = Acting(epsilon_base=0.4, epsilon_exponent=7.0).epsilons(0, 8, 8)
    expected = [0.4 ** (1 + 7 * i / 7) for i in range(8)]
    np.testing.assert_allclose(epsilons, expected)
    np.testing.assert_allclose([epsilons[0], epsilons[-1]], [0.4, 0.00065536])
    assert all(np.diff(epsilons) < 0)


def test_actors_share_one_sequence_of_epsilons():
    acting = Acting()
    parts = [acting.epsilons(first, 4, 12) for first in (0, 4, 8)]
    assert sum(parts, []) == acting.epsilons(0, 12, 12)


def test_a_single_slot_explores_with_the_base():
    assert Acting(epsilon_base=0.3).epsilons(0, 1, 1) == [0.3]


def test_late_slots_take_their_index_modulo_the_number():
    acting = Acting()
    assert acting.epsilons(8, 4, 8) == acting.epsilons(0, 4, 8)
    assert acting.epsilons(3, 2, 1) == [0.4, 0.4]


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (Acting, "n_step", 0),
        (Acting, "discount", 1.01),
        (Acting, "discount", -0.1),
        (Acting, "block_length", 0),
        (Acting, "epsilon_base", 1.5),
        (Acting, "pull_period_secs", 0.0),
        (Acting, "evaluation_period_secs", -1.0),
        (Acting, "evaluation_episodes", 0),
        (Replay, "capacity", 0),
        (Replay, "batch_size", -3),
        (Replay, "batches_per_message", 0),
        (Replay, "min_size_to_sample", 0),
        (Replay, "samples_per_insert", 0.0),
        (Replay, "samples_per_insert", -8.0),
        (Replay, "tolerance", -1.0),
        (Learning, "publish_period", 0),
        (Learning, "checkpoint_period_secs", 0.0),
        (Learning, "checkpoints_kept", 0),
        (Learning, "num_threads", 0),
    ],
)
def test_a_bad_value_is_refused_by_name(settings, key, value):
    text = f"{settings.__name__}.{key}.*{re.escape(str(value))}"
    with pytest.raises(ConfigError, match=text):
        settings(**{key: value})


def test_a_minimum_above_the_capacity_names_both():
    with pytest.raises(ConfigError, match="200.*100"):
        Replay(capacity=100, min_size_to_sample=200)


# What the agent checks once it knows the environment.


def task(job="memory", num_memories=1):
    hosts = tuple(f"m:{port}" for port in range(1, num_memories + 1))
    cluster = ClusterSpec(("p:1",), hosts, ("l:1",), 2)
    return SimpleNamespace(job=job, cluster=cluster, gauges={})


def test_a_capacity_beyond_the_machines_memory_names_both(monkeypatch):
    monkeypatch.setattr(apex_agent, "memory_bytes", lambda: 2**30)
    agent = make_agent(capacity=1_000_000_000)
    spec = agent.environment_spec()
    needed = agent.memory_factory.predicted_bytes(spec, 1_000_000_000) / 2**30
    with pytest.raises(ConfigError, match=f"1000000000 needs {needed:.1f}.*1.0 GiB"):
        agent.check(spec, task())
    agent.check(spec, task("actor"))  # it is stored elsewhere


def test_a_tolerance_that_would_lock_names_both():
    # 4 samples an insert x 4 slots x (8 + 3) rows a block + 2 x 16 rows a bundle = 208
    agent = make_agent(tolerance=103.0)
    with pytest.raises(ConfigError, match=r"103.0.*208"):
        agent.check(agent.environment_spec(), task())
    agent = make_agent(tolerance=104.0)
    agent.check(agent.environment_spec(), task())


def test_slots_are_dealt_out_over_the_memories():
    # 2 slots a memory, so half the rows a block: 4 x 2 x 11 + 32 = 120
    agent = make_agent(tolerance=59.0)
    with pytest.raises(ConfigError, match=r"59.0.*120"):
        agent.check(agent.environment_spec(), task(num_memories=2))
    make_agent(tolerance=60.0).make_limiter(task(num_memories=2))


def test_an_agent_without_environments_is_refused():
    agent = make_agent()
    with pytest.raises(ValueError, match="num_envs.*0"):
        type(agent)(None, None, agent.model, num_envs=0)

"""Whole runs of PPO as threads: rounds are exact, whoever comes, leaves or is late."""

import dataclasses
import functools
import hashlib
import itertools
import json
import threading
import time

import gymnasium
import numpy as np
import pytest
from local_run import (
    NUM_ENVS,
    STRICT,
    TIMEOUTS,
    Killed,
    cartpole,
    check_rounds,
    make_ppo_agent,
)

from distrl.agents.ppo_agent import PPOAgent
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.errors import ConfigError, RunFailed
from distrl.core.rollouts import joined_rollouts
from distrl.core.schedules import constant
from distrl.learners.sync_samples import PPOSettings
from distrl.losses.returns import step_mask
from distrl.models.ppo import PPOModel
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.policy_value_network import recurrent_policy_value_network

pytestmark = pytest.mark.timeout(60)

PATIENT = dataclasses.replace(TIMEOUTS, shutdown_secs=50.0)
ROWS = 8 * NUM_ENVS  # of a share, with the reset rows


@functools.cache
def recomputing_sampler():
    """One for all tests: its graph takes a while."""
    agent = make_ppo_agent()
    return PolicySampler(agent.model, agent.environment_spec())


class WatchedAgent(PPOAgent):
    """Checks every round before its learner trains on it, and keeps what was in it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rounds_seen = []  # number, actors, rows

    def make_learner(self, task, spec):
        loop = super().make_learner(task, spec)
        train = loop.train

        def checked_train(parts):
            self.check_round(loop, parts)
            train(parts)

        loop.train = checked_train
        return loop

    def check_round(self, loop, parts):
        (number,) = {part.header.round for part in parts}
        (version,) = {part.header.version for part in parts}
        assert (number, version) == (loop._round, loop._version)
        blocks = np.concatenate([part.record.blocks for part in parts])
        rows = joined_rollouts([part.record for part in parts])
        mask = step_mask(rows.terminated, rows.truncated, rows.first_is_last)
        total = sum(part.header.rows for part in parts)
        assert np.count_nonzero(mask) == total == blocks[:, 4].sum()
        actors = blocks[:, 0].tolist()
        assert len(actors) == len(set(actors))
        check_acted_under(recomputing_sampler(), loop.session.parameters(), rows)
        self.rounds_seen.append((number, sorted(actors), total))


def check_acted_under(sampler, parameters, rows):
    """Values and probabilities of all rows are those of these parameters."""
    sampler.load(parameters)
    steps, streams = rows.reward.shape
    flat = rows.observation.reshape((steps + 1) * streams, -1)
    acted = sampler.act(flat, (1, 2))
    np.testing.assert_allclose(rows.value.ravel(), acted.value, rtol=0, atol=1e-5)
    number = steps * streams
    same = acted.raw_action[:number] == rows.raw_action.ravel()
    drawn = np.exp(acted.log_prob[:number])
    expected = np.where(same, drawn, 1.0 - drawn)  # of two actions
    behaviour = np.exp(rows.behaviour_log_prob.ravel())
    np.testing.assert_allclose(behaviour, expected, rtol=0, atol=1e-5)


class Gate(gymnasium.Wrapper):
    """One whose steps wait, from the given one on, while `gate` is closed."""

    def __init__(self, gate, reached, at):
        super().__init__(cartpole())
        self._gate, self._reached, self._at, self._steps = gate, reached, at, 0

    def step(self, action):
        self._steps += 1
        if self._steps >= self._at and not self._gate.is_set():
            self._reached.set()
            assert self._gate.wait(40.0)
        return self.env.step(action)


class Slow:
    """An agent whose environments stop in the middle of their third share."""

    def __init__(self, at=20, **rounds):
        self.gate, self.reached = threading.Event(), threading.Event()
        self.agent = make_ppo_agent(
            lambda: Gate(self.gate, self.reached, at), kind=WatchedAgent, **rounds
        )


def rounds_of(run):
    return run.tasks["learner/0"].counters.get("rounds")


def go_on(run, number=3):
    """Waits until so many more rounds have begun."""
    target = rounds_of(run) + number
    run.wait_until(lambda: rounds_of(run) >= target)


def stop(run, name="learner/0", signal="SIGTERM"):
    run.tasks[name].signals.received = signal


def test_several_memories_and_actors(make_run):
    run = make_run(num_actors=3, num_memories=2, max_env_steps=1000)
    agent = make_ppo_agent(kind=WatchedAgent)
    run.start(agent)
    summary = run.join_well()
    check_rounds(summary)
    assert summary["env_steps"] >= 1000 and summary["learner_steps"] > 0
    for index in range(2):
        assert run.tasks[f"memory/{index}"].counters.get("inserted") > 0
    numbers = [number for number, _, _ in agent.rounds_seen]
    assert numbers == list(range(len(numbers)))
    assert summary["rounds"]["rounds"] == len(numbers)
    assert all(actors == [0, 1, 2] for _, actors, _ in agent.rounds_seen)
    assert summary["env_steps"] == sum(rows for _, _, rows in agent.rounds_seen)
    assert (run.run_dir / "export").is_dir()
    checkpoints = CheckpointStore(run.run_dir / "checkpoints")
    saved, _ = checkpoints.load(checkpoints.newest())
    assert saved["samples/env_steps"] == summary["env_steps"]
    assert saved["samples/rounds"] == len(numbers)


# Who leaves, comes, or is late.


def test_actors_leave_come_late_and_come_back(make_run):
    run = make_run(num_memories=2)
    agent = make_ppo_agent(kind=WatchedAgent)
    seen = agent.rounds_seen
    run.start(agent)
    run.wait_until(lambda: len(seen) > 2)
    stop(run, "actor/1")
    run.threads["actor/1"].join(20.0)
    run.wait_until(lambda: seen[-1][1] == [0])
    assert run.tasks["learner/0"].view.phase == "running"
    run.start(agent, ["actor/5"])
    run.wait_until(lambda: seen[-1][1] == [0, 5])
    run.start(agent, ["actor/1"])  # under another incarnation
    run.wait_until(lambda: seen[-1][1] == [0, 1, 5])
    go_on(run)
    stop(run)
    check_rounds(run.join_well())
    members = [actors for actors, _ in itertools.groupby(a for _, a, _ in seen)]
    assert members == [[0, 1], [0], [0, 5], [0, 1, 5]]


def test_an_actor_that_leaves_in_mid_share_leaves_nothing_of_it(make_run):
    run = make_run()
    slow = Slow()
    run.start(slow.agent, ["ps/0", "memory/0", "learner/0", "actor/1"])
    run.start(make_ppo_agent(), ["actor/0"])
    assert slow.reached.wait(30.0)
    stop(run, "actor/1")
    slow.gate.set()
    run.threads["actor/1"].join(20.0)
    go_on(run)
    stop(run)
    check_rounds(run.join_well())
    members = [actors for _, actors, _ in slow.agent.rounds_seen]
    assert members[:3] == [[0, 1], [0, 1], [0]] and members[-1] == [0]


def test_an_actor_that_is_killed_in_mid_share_ends_the_run_in_bounded_time(make_run):
    class Dying(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == 20:
                raise Killed
            return self.env.step(action)

    run = make_run(timeouts=PATIENT, policies=STRICT)
    agent = make_ppo_agent(kind=WatchedAgent)
    run.start(agent, ["ps/0", "memory/0", "learner/0", "actor/1"])
    run.start(make_ppo_agent(lambda: Dying(cartpole())), ["actor/0"])
    errors = run.join(38.0)  # nobody waits for the end of shutdown_secs
    assert isinstance(errors.pop("actor/0"), Killed)
    for name, error in errors.items():
        assert isinstance(error, RunFailed), (name, error)
        assert "actor/0 is lost" in str(error)
    summary = run.summary()
    members = [actors for _, actors, _ in agent.rounds_seen]
    assert members[:3] == [[0, 1], [0, 1], [1]]
    trained = sum(rows for _, _, rows in agent.rounds_seen)
    assert summary["rows"]["trained"] == summary["rows"]["inserted"] == trained


def test_a_slow_actor_is_waited_for_also_in_the_farewell(make_run):
    run = make_run(num_actors=3, num_memories=2)
    slow = Slow(share_timeout_secs=0.2)
    run.start(slow.agent, [name for name in run.names if name != "actor/0"])
    run.start(make_ppo_agent(), ["actor/0"])
    assert slow.reached.wait(30.0)
    other = run.tasks["actor/0"].counters
    run.wait_until(lambda: other.get("env_steps") >= 3 * (ROWS - NUM_ENVS))
    assert not slow.gate.wait(1.0)  # while which nobody goes on
    assert rounds_of(run) == 3 and len(slow.agent.rounds_seen) == 2
    stop(run, "ps/0", "SIGINT")
    learner = run.tasks["learner/0"]
    run.wait_until(lambda: learner.view.stopping)
    stop(run)  # once more
    slow.gate.set()
    began = time.monotonic()
    summary = run.join_well()
    assert time.monotonic() - began < 15.0
    check_rounds(summary)
    assert summary["stop_reason"] == "SIGINT at ps/0"
    assert summary["rounds"]["rounds"] == 3
    assert [actors for _, actors, _ in slow.agent.rounds_seen] == [[0, 1, 2]] * 3


def test_a_slow_actor_is_dropped_where_that_is_wanted(make_run):
    run = make_run(num_memories=2)
    settings = {"late_shares": "drop", "share_timeout_secs": 2.0}
    slow = Slow(**settings)
    seen = slow.agent.rounds_seen
    run.start(slow.agent, [name for name in run.names if name != "actor/0"])
    run.start(make_ppo_agent(**settings), ["actor/0"])
    assert slow.reached.wait(30.0)
    run.wait_until(lambda: len(seen) > 2)
    assert seen[-1][1] == [0]
    slow.gate.set()
    run.wait_until(lambda: seen[-1][1] == [0, 1])  # it is back
    stop(run)
    summary = run.join_well()
    stale = summary["rounds"]["stale_rows"]
    assert ROWS - NUM_ENVS <= stale <= ROWS  # of one share
    check_rounds(summary, stale)


# A stop in every phase.


def test_a_stop_while_the_first_round_waits_for_actors(make_run):
    run = make_run(num_actors=2)
    run.start(make_ppo_agent(), ["ps/0", "memory/0", "learner/0", "actor/0"])
    run.wait_until(run.running)
    began = time.monotonic()
    stop(run, "memory/0")
    summary = run.join_well()
    assert time.monotonic() - began < 15.0
    check_rounds(summary)
    assert summary["env_steps"] == summary["rounds"]["rounds"] == 0


def test_a_round_that_never_ends_is_given_up(make_run):
    """An actor that hangs for longer than the farewell may take."""
    timeouts = dataclasses.replace(TIMEOUTS, shutdown_secs=1.0)
    run = make_run(timeouts=timeouts)
    slow = Slow()
    run.start(slow.agent, [name for name in run.names if name != "actor/0"])
    run.start(make_ppo_agent(), ["actor/0"])
    assert slow.reached.wait(30.0)
    stop(run)
    began = time.monotonic()
    for name in ("learner/0", "memory/0", "actor/0"):
        run.threads[name].join(20.0)
    assert time.monotonic() - began < 18.0
    slow.gate.set()
    run.join(20.0)
    summary = run.summary()
    assert summary["rows"]["trained"] == sum(n for _, _, n in slow.agent.rounds_seen)
    assert summary["rounds"]["stale_rows"] <= ROWS


# The same again.


class HashedAgent(PPOAgent):
    """Keeps the hash of all variables behind round 20, and ends the run then."""

    def make_learner(self, task, spec):
        loop = super().make_learner(task, spec)
        train, rounds = loop.train, []

        def counted_train(parts):
            train(parts)
            rounds.append(parts)
            if len(rounds) == 20:
                state = sorted(loop.session.state().items())
                data = b"".join(
                    np.ascontiguousarray(each).tobytes() for _, each in state
                )
                self.digest = hashlib.sha256(data).hexdigest()
                task.signals.received = "20 rounds"

        loop.train = counted_train
        return loop


@pytest.mark.timeout(150)  # three runs
def test_equal_seeds_repeat_bit_for_bit(make_run):
    digests = []
    for seed in (5, 5, 6):
        run = make_run(num_actors=1, seed=seed)
        agent = make_ppo_agent(kind=HashedAgent)
        run.start(agent)
        check_rounds(run.join_well())
        digests.append(agent.digest)
    assert digests[0] == digests[1] != digests[2]


# Recurrent policies.


class FrozenRecurrentAgent(PPOAgent):
    """Never changes its policy, so that the learner has to find what actors had."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        network = functools.partial(recurrent_policy_value_network, policy_gain=3.0)
        self.model = PPOModel(core=RecurrentCore(8, 4, network))
        self.training = PPOSettings(1, 16, learning_rate=constant(0.0))
        self.divergences, self.fresh = [], []

    def make_learner(self, task, spec):
        loop = super().make_learner(task, spec)
        train = loop.train

        def watched_train(parts):
            rows = joined_rollouts([part.record for part in parts])
            self.fresh.append((rows.core_state.c == 0).all(axis=-1).mean())
            train(parts)
            self.divergences.append(task.gauges["approximate_kl"])

        loop.train = watched_train
        return loop


def test_states_of_a_recurrent_policy_travel_with_their_rounds(make_run):
    run = make_run(num_actors=2, num_memories=2, max_env_steps=3000)
    agent = make_ppo_agent(kind=FrozenRecurrentAgent, evaluation_period_secs=0.05)
    run.start(agent)
    summary = run.join_well(60.0)
    check_rounds(summary)
    assert max(agent.divergences) < 1e-6
    assert agent.fresh[0] >= 0.5 > max(agent.fresh[1:])  # they go on over rounds
    assert run.tasks["actor/0"].gauges["evaluation_return"] > 0
    exported = json.loads((run.run_dir / "export" / "distrl_export.json").read_text())
    assert exported["inputs"]["core_state/c"].startswith("float32[8]")
    assert "core_state/h" in exported["outputs"]


def test_unrolls_that_do_not_divide_a_round_are_refused(make_run):
    agent = make_ppo_agent(kind=FrozenRecurrentAgent, steps_per_round=10)
    run = make_run(num_actors=1)
    run.start(agent, ["learner/0"])
    with pytest.raises(ConfigError, match="unroll_length 4 .*steps_per_round 10"):
        run.threads.pop("learner/0").join(20.0)


# Bad input.


def test_a_minibatch_that_no_round_fills_is_refused_with_both_numbers(make_run):
    run = make_run(num_actors=2)
    run.start(make_ppo_agent(minibatch_size=65), ["learner/0"])
    with pytest.raises(ConfigError, match=r"minibatch_size 65 .* the 64 rows"):
        run.threads.pop("learner/0").join(20.0)
    agent = make_ppo_agent(minibatch_size=64)
    agent.check(agent.environment_spec(), run.tasks["learner/0"])


def test_every_job_refuses_it(make_run):
    run = make_run(num_actors=1)
    run.start(make_ppo_agent(minibatch_size=33), ["memory/0", "actor/0"])
    for error in run.join(20.0).values():
        assert isinstance(error, ConfigError) and "32 rows" in str(error)

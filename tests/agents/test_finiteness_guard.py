"""What becomes of numbers that are not finite."""

import types

import numpy as np
import pytest

from distrl.agents.finiteness_guard import FinitenessGuard
from distrl.agents.settings import Learning
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.parameters import ParameterSpec
from distrl.core.counters import Counters
from distrl.core.errors import ConfigError, Diverged


class Session:
    """One parameter, and a slot of a gradient optimizer."""

    def __init__(self):
        self.learner_steps = 7
        self.parameter_specs = [ParameterSpec("w", (2,), "float32")]
        self.w, self.slot = np.ones(2, np.float32), np.ones(2, np.float32)

    def parameters(self):
        return [self.w]

    def state(self):
        return {"w": self.w.copy(), "slot": self.slot.copy()}

    def restore(self, state, learner_steps):
        self.w, self.slot = state["w"].copy(), state["slot"].copy()
        self.learner_steps = learner_steps


@pytest.fixture
def made(tmp_path):
    def make(if_not_finite):
        session, store = Session(), CheckpointStore(tmp_path)
        task = types.SimpleNamespace(counters=Counters())
        learning = Learning(if_not_finite=if_not_finite)
        return FinitenessGuard(task, session, learning, store), session, store, task

    return make


BATCH = {"reward": np.array([1.0, np.nan]), "action": np.arange(2)}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_run_stops_and_the_batch_is_kept(made, bad):
    guard, session, store, _ = made("stop")
    assert guard.check(np.array([1.0, 2.0]), BATCH)
    with pytest.raises(Diverged, match="learner step 7.*diverged"):
        guard.check(np.array([1.0, bad]), BATCH)
    arrays, counters = store.load(store.directory / "diverged")
    assert counters["learner_steps"] == 7
    np.testing.assert_array_equal(arrays["reward"], BATCH["reward"])
    np.testing.assert_array_equal(arrays["action"], BATCH["action"])


def test_parameters_that_are_not_finite_are_named(made):
    guard, session, *_ = made("stop")
    session.w = np.array([0.0, np.inf], np.float32)
    with pytest.raises(Diverged, match="parameter w"):
        guard.finite_parameters()


def test_a_batch_that_cannot_be_saved_does_not_hide_the_cause(made, tmp_path):
    guard, _, store, _ = made("stop")
    store.directory = tmp_path / "file"
    store.directory.write_text("")
    with pytest.raises(Diverged, match="diverged; the batch could not be saved"):
        guard.check([np.nan], BATCH)


def test_a_step_is_skipped_and_counted(made):
    guard, session, store, task = made("skip")
    guard.finite_parameters()
    session.w = session.slot = np.full(2, np.nan, np.float32)
    session.learner_steps = 9
    assert not guard.check([np.nan], BATCH)
    assert np.isfinite(session.w).all() and np.isfinite(session.slot).all()
    assert session.learner_steps == 9 and task.counters.get("skipped_updates") == 1
    assert not (store.directory / "diverged").exists()
    session.w = np.array([np.nan, 0], np.float32)
    np.testing.assert_array_equal(guard.finite_parameters()[0], [1, 1])


def test_there_must_be_something_to_go_back_to(made):
    guard, *_ = made("skip")
    with pytest.raises(Diverged):
        guard.check([np.nan], BATCH)


def test_the_policy_is_one_of_two():
    with pytest.raises(ConfigError, match="if_not_finite.*'ignore'"):
        Learning(if_not_finite="ignore")

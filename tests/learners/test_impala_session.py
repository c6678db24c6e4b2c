"""Unrolls are trained on whatever number of devices they are split over."""

import numpy as np
import pytest

from distrl.core.nests import map_nest
from distrl.core.schedules import linear
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.core.trajectories import Trajectories
from distrl.learners.impala_session import ImpalaSession, ImpalaSettings
from distrl.losses.returns import step_mask
from distrl.models.impala import ImpalaModel
from distrl.models.recurrent_core import RecurrentCore

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
T = 4

pytestmark = pytest.mark.timeout(60)


def make(devices=("/cpu:0",), core=None, rate=0.01, **options):
    model = ImpalaModel(core=core, **options)
    settings = ImpalaSettings(linear(rate, 0.0, 100), devices)
    return ImpalaSession(model, SPEC, T, seed=0, settings=settings)


def unrolls(number, core=None, seed=0):
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, number, T)) < 0.15
    state = core.state_spec if core else ()
    return Trajectories(
        observation=rng.normal(size=(number, T + 1, 3)).astype(np.float32),
        raw_action=rng.integers(0, 2, (number, T)),
        behaviour=rng.normal(size=(number, T, 2)).astype(np.float32),
        reward=rng.normal(size=(number, T)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        first_is_last=rng.random(number) < 0.3,
        core_state=map_nest(
            lambda leaf: rng.normal(size=(number, *leaf.shape)).astype(leaf.dtype),
            state,
        ),
        version=np.zeros((number, T), np.int64),
    )


def env_steps_in(batch):
    ends = batch.terminated.T, batch.truncated.T
    return int(step_mask(*ends, batch.first_is_last).sum())


@pytest.mark.parametrize("core", [None, RecurrentCore(5)], ids=["plain", "lstm"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_towers_make_the_update_of_one(core, reduction):
    """Of 7 unrolls, 2 and 2 and 3; of 2, 0 and 1 and 1. Slots count, too."""
    one = make(core=core, loss_reduction=reduction)
    three = make(["/cpu:0"] * 3, core=core, loss_reduction=reduction)
    for step, size in enumerate((7, 2, 7)):
        batch = unrolls(size, core, seed=step)
        alone, split = (s.train(s.load(batch)) for s in (one, three))
        assert alone.keys() == split.keys()
        for name in alone:
            assert split[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-5), name
    pairs = zip(one.parameters(), three.parameters(), strict=True)
    for own, other in pairs:
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
    one.close()
    three.close()


def test_steps_are_counted_and_move_the_learning_rate():
    session = make(rate=0.01)
    batch = unrolls(6)
    assert session.rows(session.load(batch)) == 6
    rows = env_steps_in(batch)
    assert 0 < rows < 6 * T
    first = session.train(session.load(batch))
    assert first["num_rows"] == rows == session.env_steps
    assert first["learning_rate"] == pytest.approx(0.01)
    second = session.train(session.load(batch))
    assert second["learning_rate"] == pytest.approx(0.01 * (1 - rows / 100))
    assert session.learner_steps == 2
    session.close()


def test_what_does_not_count_changes_nothing():
    """What the steps from last observations say, and the versions."""
    session, other = make(), make()
    batch = unrolls(6)
    mask = step_mask(batch.terminated.T, batch.truncated.T, batch.first_is_last).T
    noise = np.where(mask, 0, 5).astype(np.float32)
    changed = batch._replace(
        reward=batch.reward + noise,
        raw_action=np.where(mask, batch.raw_action, 1 - batch.raw_action),
        version=batch.version + 3,
    )
    assert session.train(session.load(batch)) == other.train(other.load(changed))
    session.close()
    other.close()


def test_bad_input():
    with pytest.raises(ValueError, match="'/cpu:0'"):
        ImpalaSettings(devices="/cpu:0")
    with pytest.raises(ValueError, match=r"\[\]"):
        ImpalaSettings(devices=[])
    session = make()
    with pytest.raises(ValueError, match="tower_0_reward"):
        session.train(
            session.load(unrolls(3)._replace(reward=np.zeros((3, T), np.float64)))
        )
    session.close()

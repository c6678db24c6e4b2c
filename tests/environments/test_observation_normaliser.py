import functools

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium.vector import AutoresetMode
from nested_environment import NestedEnv
from small_environments import SeededEnv
from small_vectors import SEEDS, by_gymnasium, serial, shared, steps

from distrl.core.running_moments import RunningMoments
from distrl.environments.frame_stack import FrameStack
from distrl.environments.observation_normaliser import ObservationNormaliser
from distrl.environments.restarts import RestartPolicy
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotSettings


class FloatsEnv(Env):
    """Two floating-point leaves far from mean 0, of different size."""

    def __init__(self, cut=4):
        self.observation_space = spaces.Dict(
            near=spaces.Box(-np.inf, np.inf, (2,), np.float32),
            far=spaces.Tuple([spaces.Box(-1e6, 1e6, (), np.float64)]),
        )
        self.action_space = spaces.Discrete(2)
        self._cut = cut

    def _show(self):
        near = self.np_random.normal(3.0, 0.1, 2).astype(np.float32)
        return {"near": near, "far": (self.np_random.normal(-500.0, 40.0),)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action):
        self._time += 1
        return self._show(), 1.0, False, self._time == self._cut, {}


@pytest.mark.parametrize("shape", [(), (2,)])
def test_chunks_equal_the_whole(shape):
    rng = np.random.default_rng(0)
    chunks = [rng.normal(7.0, 3.0, (size, *shape)) for size in (3, 4, 5)]
    moments, merged = RunningMoments(shape), RunningMoments(shape)
    for chunk in chunks:
        moments.update(chunk)
        part = RunningMoments(shape)
        part.update(chunk)
        merged.merge(part)
    moments.update(np.zeros((0, *shape)))
    merged.merge(RunningMoments(shape))
    whole = np.concatenate(chunks)
    for one in (moments, merged):
        assert one.count == 12 and one.mean.dtype == np.float64
        np.testing.assert_allclose(one.mean, whole.mean(0), rtol=1e-13)
        np.testing.assert_allclose(one.variance, whole.var(0), rtol=1e-13)


def test_far_from_zero_nothing_is_lost():
    rows = 1e8 + np.random.default_rng(1).normal(size=10_000)
    moments = RunningMoments()
    for chunk in np.split(rows, 1000):
        moments.update(chunk.astype(np.float64))
    np.testing.assert_allclose(moments.variance, rows.var(), rtol=1e-6)


def test_state_of_moments():
    moments = RunningMoments((2,))
    moments.update(np.array([[1.0, 2.0], [3.0, 8.0]]))
    state = moments.state()
    np.testing.assert_equal(
        state, {"count": 2, "mean": [2.0, 5.0], "variance": [1.0, 9.0]}
    )
    other = RunningMoments((2,))
    other.load(state)
    other.update(np.ones((1, 2)))
    np.testing.assert_equal(moments.state(), state)  # nothing is shared
    with pytest.raises(ValueError, match=r"moments of \(3,\), got \(2,\)"):
        RunningMoments((3,)).load(state)
    with pytest.raises(ValueError, match=r"\(3,\), got \(2,\)"):
        RunningMoments((3,)).merge(moments)
    for rows in (np.ones(2), np.ones((4, 3)), 1.0):
        with pytest.raises(ValueError, match="expected"):
            moments.update(rows)
    with pytest.raises(ValueError, match="not finite: nan"):
        moments.update(np.array([[0.0, np.nan]]))
    np.testing.assert_equal(moments.state(), state)


@pytest.mark.parametrize("back_end", [serial, shared, by_gymnasium])
@pytest.mark.timeout(60)
def test_every_observation_counts_once(back_end):
    """Against the moments of all that the environments showed so far."""
    with back_end(FloatsEnv) as alone:
        seen = [row[0] for row in steps(alone, 12)]
    with ObservationNormaliser(back_end(FloatsEnv), clip=1.5, epsilon=0.01) as normal:
        normals = [row[0] for row in steps(normal, 12)]
        for time, shown in enumerate(normals):
            for get in (lambda nest: nest["near"], lambda nest: nest["far"][0]):
                rows = np.concatenate([get(row) for row in seen[: time + 1]])
                rows = rows.astype(np.float64)
                expected = (get(seen[time]) - rows.mean(0)) / np.sqrt(
                    rows.var(0) + 0.01
                )
                assert get(shown).dtype == np.float32
                np.testing.assert_allclose(
                    get(shown), np.clip(expected, -1.5, 1.5), rtol=1e-4, atol=1e-5
                )
        assert {moments.count for moments in normal.moments.values()} == {26}
        assert set(normal.state()) == {"near", "far/0"}


def test_frozen():
    environment = ObservationNormaliser(serial(FloatsEnv))
    steps(environment, 10)
    environment.update = False
    state = environment.state()
    steps(environment, 10)
    np.testing.assert_equal(environment.state(), state)
    frozen = ObservationNormaliser(serial(FloatsEnv), update=False)
    frozen.load(state)
    observation, _ = frozen.reset()
    raw, _ = serial(FloatsEnv).reset()
    expected = (raw["near"] - state["near"]["mean"]) / np.sqrt(
        state["near"]["variance"] + 1e-8
    )
    np.testing.assert_allclose(observation["near"], expected, rtol=1e-4)
    with pytest.raises(ValueError, match="far/0.*got.*'near'"):
        frozen.load({"near": state["near"]})


def test_last_observations_of_same_step():
    settings = SlotSettings(autoreset_mode=AutoresetMode.SAME_STEP)
    backend = SerialVectorEnvironment(
        functools.partial(FloatsEnv, 1), 2, SEEDS, settings
    )
    environment = ObservationNormaliser(backend, clip=5.0)
    environment.reset()
    step = environment.step(np.zeros(2, int))
    assert environment.moments["near"].count == 6  # first, last and first again
    for final in step.info["final_obs"]:
        assert final["near"].dtype == np.float32 and final["near"].shape == (2,)
        assert abs(final["far"][0]) <= 5.0


def test_disabled_counts_the_slots_that_were_reset():
    settings = SlotSettings(autoreset_mode=AutoresetMode.DISABLED)
    environment = ObservationNormaliser(
        SerialVectorEnvironment(FloatsEnv, 2, SEEDS, settings)
    )
    environment.reset()
    environment.reset(options={"reset_mask": np.array([True, False])})
    assert environment.moments["near"].count == 3


class BreaksEnv(SeededEnv):
    """Raises in its third step, whenever it was made anew."""

    def step(self, action):
        if self.count == 2:
            raise RuntimeError("planned")
        return super().step(action)


def test_repeated_observation_of_a_restart_does_not_count():
    settings = SlotSettings(restart_on_error=RestartPolicy(limit=1))
    environment = ObservationNormaliser(
        SerialVectorEnvironment(BreaksEnv, 1, SEEDS, settings)
    )
    environment.reset()
    for _ in range(4):  # 2 steps, the cut, the reset
        environment.step(np.zeros(1, int))
    assert environment.num_restarts == 1
    assert environment.moments[""].count == 4


def test_spec_and_space():
    environment = ObservationNormaliser(serial(FloatsEnv), clip=3.0)
    leaf = environment.spec.observation["far"][0]
    assert (leaf.dtype, leaf.minimum, leaf.maximum) == ("float32", -3.0, 3.0)
    box = environment.observation_space["near"]
    assert box == spaces.Box(-3.0, 3.0, (2,), np.float32)
    stacked = FrameStack(environment, 2).spec.observation
    assert stacked["near"].num_stacked == 2
    again = ObservationNormaliser(FrameStack(serial(FloatsEnv), 2))
    assert again.spec.observation["near"].num_stacked == 1


def test_bad_arguments():
    with pytest.raises(ValueError, match="'alone/0' is int64"):
        ObservationNormaliser(serial(NestedEnv))
    with pytest.raises(ValueError, match="clip > 0.*-1"):
        ObservationNormaliser(serial(FloatsEnv), clip=-1)

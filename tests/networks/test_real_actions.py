"""What becomes of raw real-valued actions on the way to the environment."""

import numpy as np
import pytest
from graph_runs import run

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec
from distrl.networks.gaussian import GaussianFactory
from distrl.networks.squashed_gaussian import SquashedGaussianFactory

SPEC = ArraySpec((2,), "float32", (-1.0, 0.0), (1.0, 6.0))
LOW, HIGH = np.array(SPEC.minimum), np.array(SPEC.maximum)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_environment_gets_a_clipped_action(dtype):
    spec = ArraySpec((2,), dtype, (-1.0, -np.inf), (0.1, np.inf))
    factory = GaussianFactory(spec)
    raw = np.float32([[-7, -7], [0.05, 3], [9, 1e6]])
    expected = np.array([[-1, -7], [np.float32(0.05), 3], [0.1, 1e6]]).astype(dtype)
    for action in (
        factory.to_environment(raw),
        run(factory.to_environment_graph, (raw,)),
    ):
        assert action.dtype == dtype
        np.testing.assert_array_equal(action, expected)
    assert raw[0, 0] == -7 and factory.raw_spec == ArraySpec((2,), "float32")


def test_without_bounds_nothing_is_clipped():
    raw = np.float32([-1e30, 1e30])
    factory = GaussianFactory(ArraySpec((), "float32"))
    np.testing.assert_array_equal(factory.to_environment(raw), raw)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_environment_gets_a_squashed_action(dtype):
    spec = ArraySpec((2,), dtype, SPEC.minimum, SPEC.maximum)
    factory = SquashedGaussianFactory(spec)
    raw = np.float32([[-50, 50], [0, 0], [0.3, -0.3]])
    expected = LOW + (HIGH - LOW) * (np.tanh(raw.astype(np.float64)) + 1) / 2
    for action in (
        factory.to_environment(raw),
        run(factory.to_environment_graph, (raw,)),
    ):
        assert action.dtype == dtype
        np.testing.assert_allclose(action, expected, rtol=1e-6)
        assert (action >= LOW).all() and (action <= HIGH).all()
    assert factory.raw_spec == ArraySpec((2,), "float32")


def test_bounds_that_float32_rounds_are_kept():
    spec = ArraySpec((), "float32", float(np.float32(-0.1)), float(np.float32(0.7)))
    action = SquashedGaussianFactory(spec).to_environment(np.float32([-99, 99]))
    np.testing.assert_array_equal(action, np.float32([-0.1, 0.7]))


@pytest.mark.parametrize(
    ("low", "high"),
    [(None, 1.0), (-1.0, None), ((-1.0, -np.inf), 1.0), (1.0, 1.0), (1.0, (2.0, 0.0))],
)
def test_squashing_needs_finite_bounds_apart(low, high):
    with pytest.raises(ConfigError, match="finite bounds"):
        SquashedGaussianFactory(ArraySpec((2,), "float32", low, high))

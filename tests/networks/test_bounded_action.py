"""Real-valued actions as numbers from −1 to 1, and back."""

import numpy as np
import pytest
from graph_runs import run

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.networks.bounded_action import BoundedAction


def bounded(action):
    return BoundedAction(EnvironmentSpec(ArraySpec((1,), "float32"), action))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_there_and_back(shape, dtype):
    number = int(np.prod(shape))
    rng = np.random.default_rng(number)
    low, high = rng.uniform(-9, 0, number), rng.uniform(1, 9, number)
    action = bounded(ArraySpec(shape, dtype, tuple(low), tuple(high)))
    elements = rng.uniform(-1, 1, (7, number)).astype(np.float32)
    got = run(action.to_environment, (elements,))
    assert got.shape == (7, *shape) and got.dtype == dtype
    assert action.num_elements == number
    expected = low + (elements + 1) / 2 * (high - low)
    np.testing.assert_allclose(got.reshape(7, number), expected, rtol=1e-5, atol=1e-5)
    back = run(action.elements, (got,))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, elements, rtol=1e-5, atol=1e-5)


def test_bounds_are_reached_and_never_left():
    low, high = (0.1, -0.3, 1 / 3), (0.7, 1e6, 2 / 3)
    for dtype in ("float32", "float64"):
        action = bounded(ArraySpec((3,), dtype, low, high))
        elements = np.float32([[-1] * 3, [1] * 3, [-7] * 3, [7] * 3])
        got = run(action.to_environment, (elements,))
        assert (got >= np.array(low, dtype)).all()
        assert (got <= np.array(high, dtype)).all()
        np.testing.assert_allclose(got[[0, 2]], [low, low], rtol=1e-6, atol=0.1)
        np.testing.assert_allclose(got[[1, 3]], [high, high], rtol=1e-6)


def test_an_action_of_another_shape_is_refused():
    action = bounded(ArraySpec((2,), "float32", -1, 1))
    with pytest.raises(ValueError, match="expected an action"):
        run(action.elements, (np.zeros((4, 3), np.float32),))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (ArraySpec((2,), "int64", 0, 1), "real numbers.*int64"),
        (ArraySpec((2,), "float32", -1.0), "finite bounds.*None"),
        (ArraySpec((2,), "float32", (0.0, 1.0), 1.0), "minimum < maximum.*1.0"),
        (ArraySpec((0,), "float32", 0.0, 1.0), "without elements"),
        ((ArraySpec((1,), "float32", 0, 1),) * 2, "one array"),
    ],
)
def test_other_actions_are_refused_by_name(action, words):
    with pytest.raises(ConfigError, match=words):
        bounded(action)

"""ES policies: many at once do what each does alone; bad specs are refused."""

import numpy as np
import pytest

from distrl.checkpoints.policy import GreedyPolicy, PolicySession
from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.models.es import ESModel
from distrl.models.population import Population

N = 6
NESTED = {
    "far": ArraySpec((2,), "float64"),
    "symbol": ArraySpec((), "int64", 3, 7),
    "x": ArraySpec((2, 2), "float32"),
    "bytes": ArraySpec((3,), "uint8", 0, 255),
}
DISCRETE = ArraySpec((), "int64", -1, 2)
REAL = ArraySpec((2, 1), "float32", (-1.0, 0.0), (3.0, 0.5))

pytestmark = pytest.mark.timeout(60)


def observation(rng):
    return {
        "far": rng.normal(5000.0, 3.0, (N, 2)),
        "symbol": rng.integers(3, 8, N),
        "x": rng.normal(size=(N, 2, 2)).astype(np.float32),
        "bytes": rng.integers(0, 256, (N, 3), np.uint8),
    }


def specs_of(model, spec):
    session = PolicySession(
        lambda observation: flatten_as(
            spec.action, model.build_greedy(spec, observation)[0]
        ),
        {"observation": spec.observation},
    )
    session.close()
    return session.parameter_specs


@pytest.mark.parametrize("action", [DISCRETE, REAL], ids=["discrete", "real"])
@pytest.mark.parametrize("hidden", [(), (5,), (8, 4)], ids=str)
@pytest.mark.parametrize("normalise", [True, False])
def test_a_population_does_what_each_policy_does_alone(action, hidden, normalise):
    rng = np.random.default_rng(0)
    spec, model = EnvironmentSpec(NESTED, action), ESModel(hidden, normalise)
    specs = specs_of(model, spec)
    first = 3 * 2 if normalise else 0
    assert [s.name.startswith("normaliser/") for s in specs] == [
        i < first for i in range(len(specs))
    ]
    statistics = []
    for path in ("far", "x")[: first // 3]:
        shape = NESTED[path].shape
        mean = np.full(shape, 5000.0 if path == "far" else 0.2)
        statistics += [mean, np.full(shape, 4.0), np.asarray(7, np.int64)]
    shapes = [s.shape for s in specs[first:]]
    rows = [[rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(N)]
    population = Population(model, spec, shapes)
    population.load(statistics, np.stack([_flat(row) for row in rows]))
    seen = observation(rng)
    acted = population.act(seen)
    for i, row in enumerate(rows):
        names = [s.name for s in specs]
        alone = GreedyPolicy(model, spec, dict(zip(names, statistics + row)))  # noqa: B905
        expected = alone.act({k: v[i : i + 1] for k, v in seen.items()})
        alone.close()
        np.testing.assert_allclose(acted[i], expected[0], rtol=1e-4, atol=1e-5)
    assert acted.dtype.name == action.dtype and acted.shape == (N, *action.shape)
    assert (acted >= np.reshape(action.minimum, action.shape or ())).all()
    assert (acted <= np.reshape(action.maximum, action.shape or ())).all()
    assert len(np.unique(acted)) > 1


def _flat(arrays):
    return np.concatenate([array.ravel() for array in arrays])


def test_another_number_of_weights_is_refused():
    spec = EnvironmentSpec(NESTED["x"], DISCRETE)
    population = Population(ESModel((), False), spec, [(4, 4), (4,)])
    with pytest.raises(ValueError, match="20 weights a policy, got 21"):
        population.load([], np.zeros((2, 21), np.float32))


@pytest.mark.parametrize(
    "action",
    [
        ArraySpec((2,), "float32"),
        ArraySpec((2,), "int64", 0, 3),
        {"a": DISCRETE},
    ],
    ids=["unbounded", "several", "nested"],
)
def test_an_action_that_it_cannot_choose_is_a_config_error(action):
    with pytest.raises(ConfigError, match="ESModel needs one bounded.*got"):
        ESModel().check(EnvironmentSpec(NESTED["x"], action))


def test_nothing_to_normalise_is_a_config_error():
    spec = EnvironmentSpec(NESTED["bytes"], DISCRETE)
    with pytest.raises(ConfigError, match="only floating-point.*uint8"):
        ESModel().check(spec)
    ESModel(normalise_observations=False).check(spec)


def test_a_layer_without_units_is_a_config_error():
    with pytest.raises(ConfigError, match=r"hidden_sizes.*\(4, 0\)"):
        ESModel((4, 0))

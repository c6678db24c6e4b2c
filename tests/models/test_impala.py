"""The IMPALA graphs, against equations in NumPy."""

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from impala_graphs import Learner, example_unrolls
from impala_oracle import OPTIONS, oracle

from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.losses.returns import step_mask
from distrl.models.gradient_optimizers import adam, rmsprop
from distrl.models.impala import ImpalaModel
from distrl.models.impala_batch import step_masks, time_major

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
T, U = 5, 6


def linear_network(spec, observation, num_parameters):
    """Logits o · w and values o · u, with few enough parameters for an oracle."""
    w = tf.get_variable("w", [3, num_parameters], use_resource=True)
    u = tf.get_variable("u", [3, 1], use_resource=True)
    return tf.matmul(observation, w), tf.squeeze(tf.matmul(observation, u), 1)


@pytest.fixture(scope="module")
def linear():
    """One learner for all tests that change nothing."""
    one = Learner(ImpalaModel(linear_network, **OPTIONS), SPEC, T)
    yield one
    one.session.close()


def unrolls(seed=0):
    return example_unrolls(ImpalaModel(), SPEC, T, U, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_metrics_follow_the_equations(linear, seed):
    data = unrolls(seed)
    got = linear.run(linear.graph.metrics, data)
    expected, _ = oracle(data, linear.values())
    assert set(got) == {*expected, "gradient_norm"}
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert 0 < expected["clipped_share"] < 1
    assert data.truncated.any() and data.terminated.any() and data.first_is_last.any()


def differences(data, values, reduction, step=1e-6):
    """The gradient of the oracle's loss for fixed targets, by central differences."""
    _, targets = oracle(data, values)
    slopes = {name: np.zeros(array.shape) for name, array in values.items()}
    for name, array in values.items():
        for place in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = array.astype(np.float64)
                moved[place] += sign * step
                metrics, _ = oracle(data, {**values, name: moved}, targets, reduction)
                ends.append(metrics["loss"])
            slopes[name][place] = (ends[0] - ends[1]) / (2 * step)
    return slopes


def rmsprop_step(gradient, rate):
    """The first one: the mean square starts at 1."""
    return -rate * gradient / np.sqrt(0.99 + 0.01 * gradient**2 + 0.1)


def adam_step(gradient, rate):
    # ε is divided by √(1 − β₂) in TensorFlow's ("epsilon hat") form of Adam.
    return -rate * gradient / (abs(gradient) + 0.5 / np.sqrt(1 - 0.999))


@pytest.mark.parametrize(
    ("optimizer", "expected_step", "reduction", "max_norm"),
    [
        (rmsprop, rmsprop_step, "sum", 40.0),
        (rmsprop, rmsprop_step, "mean", 0.05),
        (functools.partial(adam, epsilon=0.5), adam_step, "mean", 40.0),
    ],
)
def test_the_step_is_the_optimizers_along_the_clipped_gradient(
    made, optimizer, expected_step, reduction, max_norm
):
    options = {"loss_reduction": reduction, "max_gradient_norm": max_norm}
    model = ImpalaModel(
        linear_network, gradient_optimizer=optimizer, **options, **OPTIONS
    )
    one, data = made(Learner, model, SPEC, T), unrolls(3)
    before = one.values()
    gradients = differences(data, before, reduction)
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    assert (norm > max_norm) == (max_norm == 0.05)
    expected, _ = oracle(data, before, reduction=reduction)
    got = one.run((one.graph.metrics, one.graph.train_op), data, 0.25)[0]
    np.testing.assert_allclose(got["gradient_norm"], norm, rtol=1e-4)
    np.testing.assert_allclose(got["loss"], expected["loss"], rtol=1e-4)
    after = one.values()
    for name, gradient in gradients.items():
        step = expected_step(gradient * min(1.0, max_norm / norm), 0.25)
        moved = after[name] - before[name]
        np.testing.assert_allclose(moved, step, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_towers_are_one_batch(made, reduction):
    """Also where one of them has fewer steps that count than the other."""
    model = ImpalaModel(linear_network, loss_reduction=reduction, **OPTIONS)
    whole = made(Learner, model, SPEC, T)
    split = made(Learner, model, SPEC, T, towers=True)
    data = unrolls(5)
    order = np.argsort(data.first_is_last, kind="stable")
    data = map_nest(lambda leaf: leaf[order], data)
    mask = step_mask(data.terminated.T, data.truncated.T, data.first_is_last)
    first, second = mask[:, :4].sum() / 4, mask[:, 4:].sum() / 2
    assert first != second
    got = []
    for one in (whole, split):
        metrics, _ = one.run((one.graph.metrics, one.graph.train_op), data, 0.1)
        got.append({**metrics, **one.values()})
    for name, value in got[0].items():
        np.testing.assert_allclose(got[1][name], value, 1e-5, 1e-6, err_msg=name)


def test_masked_rows_have_no_influence(linear):
    data, other = unrolls(0), unrolls(1)
    mask = step_mask(data.terminated.T, data.truncated.T, data.first_is_last).T
    mixed = {
        name: np.where(
            mask.reshape(U, T, *[1] * (getattr(data, name).ndim - 2)),
            getattr(data, name),
            getattr(other, name),
        )
        for name in ("raw_action", "behaviour", "reward")
    }
    others = data._replace(**mixed)
    assert (others.reward != data.reward).any()
    metrics = [linear.run(linear.graph.metrics, each) for each in (data, others)]
    assert metrics[0] == metrics[1] and metrics[0]["gradient_norm"] > 0


def test_all_masked_is_no_loss(made):
    one = made(Learner, ImpalaModel(linear_network, **OPTIONS), SPEC, 1)
    data = example_unrolls(ImpalaModel(), SPEC, 1, U, 0)
    data = data._replace(first_is_last=np.ones(U, bool))
    before = one.values()
    metrics, _ = one.run((one.graph.metrics, one.graph.train_op), data, 0.1)
    assert set(metrics.values()) == {0.0}
    for name, array in one.values().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_learning_rate_of_0_changes_nothing(linear):
    before = linear.values()
    linear.run(linear.graph.train_op, unrolls(), 0.0)
    for name, array in linear.values().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_checkpoint_names_every_variable_once(linear):
    names = [v.op.name for v in linear.graph.variables]
    assert sorted(names) == sorted(v.op.name for v in linear.everything)
    assert any("RMSProp" in name for name in names)


def test_masks_of_the_graph_are_those_of_numpy():
    rng = np.random.default_rng(0)
    terminated, truncated = rng.random((2, 9, 50)) < 0.3
    first_is_last = rng.random(50) < 0.5
    with tf.Graph().as_default(), tf.Session() as session:
        batch = time_major(unrolls())._replace(
            terminated=tf.constant(terminated),
            truncated=tf.constant(truncated),
            first_is_last=tf.constant(first_is_last),
        )
        got = session.run(step_masks(batch))
    np.testing.assert_array_equal(got, step_mask(terminated, truncated, first_is_last))


def test_the_number_of_steps_must_be_known():
    with tf.Graph().as_default():
        flags = tf.placeholder(tf.bool, [None, None])
        batch = time_major(unrolls())._replace(terminated=flags, truncated=flags)
        with pytest.raises(ValueError, match="static T"):
            ImpalaModel().build_tower(SPEC, batch)


@pytest.mark.parametrize(
    "options",
    [
        {"entropy_cost": -0.1},
        {"baseline_cost": -1},
        {"discount": 1.1},
        {"lambda_": -0.5},
        {"rho_clip": 0},
        {"pg_rho_clip": -1},
        {"max_gradient_norm": 0},
        {"loss_reduction": "'max'"},
        {"reward_clipping": "'sign'"},
    ],
)
def test_bad_options_are_refused_with_the_value(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}.* got {value}"):
        ImpalaModel(**{name: value.strip("'") if isinstance(value, str) else value})


def test_what_cannot_be_acted_in_is_refused():
    with pytest.raises(ConfigError, match="action"):
        ImpalaModel().trajectories_spec(SPEC._replace(action=ArraySpec((), "int64")), T)

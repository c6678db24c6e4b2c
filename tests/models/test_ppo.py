"""The PPO graphs, against equations in NumPy."""

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.models.ppo import PPOBatch, PPOModel
from distrl.networks.distributions import action_distribution
from distrl.networks.placeholders import placeholders

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
NESTED = EnvironmentSpec(
    {"a": ArraySpec((2,), "float64"), "b": ArraySpec((), "int64", 0, 4)},
    {
        "push": ArraySpec((2,), "float32", -1.0, 1.0),
        "turn": ArraySpec((3,), "int64", 0, 2),
    },
)
B = 8


def linear_network(spec, observation, num_parameters):
    """Logits o · w and values o · u, with few enough parameters for an oracle."""
    w = tf.get_variable("w", [3, num_parameters], use_resource=True)
    u = tf.get_variable("u", [3, 1], use_resource=True)
    return tf.matmul(observation, w), tf.squeeze(tf.matmul(observation, u), 1)


def example_batch(seed=0, mask=None):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(4, B)).astype(np.float32)
    return PPOBatch(
        rng.normal(size=(B, 3)).astype(np.float32),
        rng.integers(0, 2, B),
        behaviour_log_prob=-0.7 + 0.3 * numbers[0],
        advantage=numbers[1],
        value_target=numbers[2],
        old_value=numbers[3],
        mask=np.ones(B, np.float32) if mask is None else mask,
    )


class Learner:
    """A learning graph with a session; what a caller of PPOModel has to write."""

    def __init__(self, model, spec=SPEC, seed=1):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            self.inputs = placeholders(model.batch_spec(spec), "batch")
            self.scalars = [tf.placeholder(tf.float32, []) for _ in range(2)]
            self.graph = model.build_learning(spec, self.inputs, *self.scalars)
            init_op = tf.global_variables_initializer()
            self.everything = tf.global_variables()
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)

    def run(self, fetches, batch, learning_rate=0.0, clip=0.2):
        feeds = [*leaves(batch), learning_rate, clip]
        names = [*leaves(self.inputs), *self.scalars]
        return self.session.run(fetches, dict(zip(names, feeds, strict=True)))

    def values(self):
        values = self.session.run(self.graph.parameters)
        names = [v.op.name.removeprefix("network/") for v in self.graph.parameters]
        return dict(zip(names, values, strict=True))


@pytest.fixture
def learner():
    made = []

    def make(*args, **kwargs):
        made.append(Learner(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


@pytest.fixture(scope="module")
def linear():
    """One learner for all tests that change nothing: making one costs a second."""
    one = Learner(PPOModel(linear_network, **OPTIONS))
    yield one
    one.session.close()


@pytest.fixture(scope="module")
def nested():
    one = Learner(PPOModel(normalise_observations=True), NESTED)
    yield one
    one.session.close()


def log_probs(batch, w):
    logits = batch.observation.astype(np.float64) @ w
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def oracle(batch, values, clip, model):
    """The metrics of the linear network, in float64."""
    log_pi = log_probs(batch, values["w"])
    log_ratio = log_pi[np.arange(B), batch.raw_action] - batch.behaviour_log_prob
    ratio, a = np.exp(log_ratio), batch.advantage
    v = (batch.observation.astype(np.float64) @ values["u"])[:, 0]
    near = batch.old_value + np.clip(v - batch.old_value, -model["value_clip"], None)
    near = np.minimum(near, batch.old_value + model["value_clip"])
    errors = [(each - batch.value_target) ** 2 / 2 for each in (v, near)]
    rows = {
        "policy_loss": -np.minimum(ratio * a, np.clip(ratio, 1 - clip, 1 + clip) * a),
        "value_loss": np.maximum(*errors),
        "entropy": -(np.exp(log_pi) * log_pi).sum(1),
        "approximate_kl": ratio - 1 - log_ratio,
        "clipped_share": abs(ratio - 1) > clip,
    }
    means = {n: (x * batch.mask).sum() / batch.mask.sum() for n, x in rows.items()}
    means["loss"] = (
        means["policy_loss"]
        + model["value_cost"] * means["value_loss"]
        - model["entropy_cost"] * means["entropy"]
    )
    return means


OPTIONS = {"value_cost": 0.7, "entropy_cost": 0.3, "value_clip": 0.4}
MASK = np.array([1, 1, 0, 1, 1, 0, 1, 1], np.float32)


@pytest.mark.parametrize("clip", [0.1, 0.5])
@pytest.mark.parametrize("mask", [None, MASK])
def test_the_metrics_follow_the_equations(linear, clip, mask):
    one, batch = linear, example_batch(0, mask)
    got = one.run(one.graph.metrics, batch, clip=clip)
    expected = oracle(batch, one.values(), clip, OPTIONS)
    assert set(got) == {*expected, "gradient_norm"}
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert 0 < expected["clipped_share"] < 1


def test_at_the_acting_parameters_the_loss_is_minus_the_mean_advantage(linear):
    one, batch = linear, example_batch()
    log_prob = log_probs(batch, one.values()["w"])[np.arange(B), batch.raw_action]
    batch = batch._replace(behaviour_log_prob=log_prob.astype(np.float32))
    got = one.run(one.graph.metrics, batch)
    np.testing.assert_allclose(got["policy_loss"], -batch.advantage.mean(), atol=1e-6)
    np.testing.assert_allclose(got["approximate_kl"], 0.0, atol=1e-6)
    assert got["clipped_share"] == 0


def differences(batch, values, clip, model, step=1e-6):
    """The gradient of the oracle's loss, by central differences."""
    gradients = {
        name: np.zeros_like(array, np.float64) for name, array in values.items()
    }
    for name, array in values.items():
        for place in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = array.astype(np.float64)
                moved[place] += sign * step
                changed = {**values, name: moved}
                ends.append(oracle(batch, changed, clip, model)["loss"])
            gradients[name][place] = (ends[0] - ends[1]) / (2 * step)
    return gradients


@pytest.mark.parametrize("max_norm", [0.05, 100.0])
def test_the_step_is_adams_along_the_clipped_gradient(learner, max_norm):
    epsilon, rate = 1.0, 0.25
    model = PPOModel(
        linear_network, max_gradient_norm=max_norm, adam_epsilon=epsilon, **OPTIONS
    )
    one, batch = learner(model), example_batch(3, MASK)
    before = one.values()
    gradients = differences(batch, before, 0.2, OPTIONS)
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    got = one.run((one.graph.metrics, one.graph.train_op), batch, rate)[0]
    np.testing.assert_allclose(got["gradient_norm"], norm, rtol=1e-4)
    after = one.values()
    for name, gradient in gradients.items():
        clipped = gradient * min(1.0, max_norm / norm)
        # ε is divided by √(1 − β₂) in TensorFlow's ("epsilon hat") form of Adam.
        step = -rate * clipped / (abs(clipped) + epsilon / np.sqrt(1 - 0.999))
        moved = after[name] - before[name]
        np.testing.assert_allclose(moved, step, rtol=1e-2, atol=1e-7)


def test_masked_rows_have_no_influence(linear):
    batch, other = example_batch(0, MASK), example_batch(1, MASK)
    mixed = map_nest(
        lambda a, b: np.where((MASK == 1).reshape(-1, *[1] * (a.ndim - 1)), a, b),
        *(batch, other),
    )
    metrics = [linear.run(linear.graph.metrics, each) for each in (batch, mixed)]
    assert metrics[0] == metrics[1] and metrics[0]["gradient_norm"] > 0


def test_all_masked_is_no_loss(linear):
    metrics = linear.run(
        linear.graph.metrics, example_batch(0, np.zeros(B, np.float32))
    )
    assert set(metrics.values()) == {0.0}


def test_a_learning_rate_of_0_changes_nothing(linear):
    before = linear.values()
    linear.run(linear.graph.train_op, example_batch(), 0.0)
    for name, array in linear.values().items():
        np.testing.assert_array_equal(array, before[name])


def nested_batch(model, seed=0):
    rng = np.random.default_rng(seed)
    spec = model.batch_spec(NESTED)
    return spec._replace(
        observation={"a": rng.normal(size=(B, 2)), "b": rng.integers(0, 5, B)},
        raw_action={
            "push": rng.normal(size=(B, 2)).astype(np.float32),
            "turn": rng.integers(0, 3, (B, 3)),
        },
        **{
            name: rng.normal(size=B).astype(np.float32)
            for name in ("advantage", "value_target", "old_value")
        },
        behaviour_log_prob=np.full(B, -5, np.float32),
        mask=np.ones(B, np.float32),
    )


NORMALISER = [f"normaliser/observation_a/{n}" for n in ("mean", "variance", "count")]


def test_nests_train_and_the_statistics_stay(nested):
    one, before = nested, nested.values()
    one.run(one.graph.train_op, nested_batch(PPOModel()), 0.01)
    changed = {n for n, array in one.values().items() if (array != before[n]).any()}
    assert changed == set(before) - set(NORMALISER)
    assert any("log_std" in name for name in changed)


def test_acting_has_the_parameters_of_learning_in_one_order(nested):
    model = PPOModel(normalise_observations=True)
    names = [v.op.name for v in nested.graph.parameters]
    assert names[:3] == NORMALISER
    with tf.Graph().as_default():
        observation = placeholders(NESTED.observation, "observation")
        model.build_acting(NESTED, observation, tf.placeholder(tf.int32, [2]))
        assert [v.op.name for v in tf.global_variables()] == names


def test_a_checkpoint_names_every_variable_once(nested):
    names = [v.op.name for v in nested.graph.variables]
    assert sorted(names) == sorted(v.op.name for v in nested.everything)


def test_actions_may_be_squashed(learner):
    squashed = functools.partial(action_distribution, squash=True)
    spec = SPEC._replace(action=ArraySpec((1,), "float32", -2.0, 2.0))
    one = learner(PPOModel(distribution=squashed), spec)
    batch = example_batch()._replace(raw_action=np.full((B, 1), 0.3, np.float32))
    metrics = one.run(one.graph.metrics, batch)
    assert np.isfinite(list(metrics.values())).all()


@pytest.mark.parametrize(
    "options",
    [
        {"entropy_cost": -0.1},
        {"value_cost": -1},
        {"value_clip": 0},
        {"max_gradient_norm": 0},
        {"adam_epsilon": -1e-8},
    ],
)
def test_bad_options_are_refused_with_the_number(options):
    ((name, number),) = options.items()
    with pytest.raises(ValueError, match=f"{name} .* got {number}"):
        PPOModel(**options)


def test_what_cannot_be_acted_in_is_refused():
    with pytest.raises(ConfigError, match="action"):
        PPOModel().batch_spec(SPEC._replace(action=ArraySpec((), "int64")))


def test_bytes_alone_cannot_be_normalised():
    spec = SPEC._replace(observation=ArraySpec((4,), "uint8"))
    with tf.Graph().as_default(), pytest.raises(ConfigError, match="uint8"):
        PPOModel(normalise_observations=True).build_acting(
            spec, placeholders(spec.observation, "o"), tf.placeholder(tf.int32, [2])
        )

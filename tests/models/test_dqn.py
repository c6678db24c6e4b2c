"""The DQN graphs, run in a session with the single-threaded executor."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.models.dqn import DQNModel
from distrl.networks.placeholders import batch_placeholders, placeholders
from distrl.networks.q_network import q_network
from distrl.networks.torsos import nature_cnn

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int32", -1, 1))
B = 6


def linear_network(spec, observation):
    """q = observation · w, with so few parameters that an oracle is readable."""
    return tf.matmul(observation, tf.get_variable("w", [3, 3], use_resource=True))


def example_batch(seed=0):
    rng = np.random.default_rng(seed)
    s_tm1, s_t = rng.normal(size=(2, B, 3)).astype(np.float32)
    return ReplayBatch(
        Transition(
            s_tm1,
            rng.integers(-1, 2, B, dtype=np.int32),
            rng.normal(size=B).astype(np.float32),
            np.array([0.9, 0, 0.9, 0.5, 0, 0.9], np.float32),
            s_t,
        ),
        weight=rng.random(B).astype(np.float32),
        id=np.arange(B),
    )


class Learner:
    """A learning graph with a session; what a caller of DQNModel has to write."""

    def __init__(self, model, spec=SPEC, seed=1):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            self.inputs = batch_placeholders(spec)
            self.graph = model.build_learning(spec, self.inputs)
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)

    def run(self, fetches, batch):
        return self.session.run(
            fetches, dict(zip(leaves(self.inputs), leaves(batch), strict=True))
        )

    def values(self, variables):
        return {
            v.op.name: value
            for v, value in zip(variables, self.session.run(variables), strict=True)
        }


@pytest.fixture
def learner():
    made = []

    def make(*args, **kwargs):
        made.append(Learner(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def oracle(online, target, batch, double):
    """TD errors and loss of the linear network."""
    data = batch.transition
    rows = np.arange(B)
    q_t = data.s_t @ target
    best = (data.s_t @ online if double else q_t).argmax(axis=1)
    goal = data.r_t + data.discount_t * q_t[rows, best]
    error = goal - (data.s_tm1 @ online)[rows, data.a_tm1 + 1]
    size = abs(error)
    return error, np.mean(batch.weight * np.where(size < 1, error**2 / 2, size - 1 / 2))


@pytest.mark.parametrize("double", [True, False])
def test_loss_priorities_and_metrics_follow_the_equation(learner, double):
    one = learner(DQNModel(linear_network, double=double))
    batch = example_batch()
    weights = one.values(one.graph.variables)
    error, loss = oracle(weights["online/w"], weights["target/w"], batch, double)
    got_priorities, got_loss, metrics = one.run(
        (one.graph.priorities, one.graph.loss, one.graph.metrics), batch
    )
    np.testing.assert_allclose(got_priorities, abs(error), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got_loss, loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)
    mean_q = (batch.transition.s_tm1 @ weights["online/w"]).mean()
    np.testing.assert_allclose(metrics["mean_q"], mean_q, rtol=1e-4, atol=1e-6)


def test_the_example_tells_double_from_plain(learner):
    one = learner(DQNModel(linear_network))
    w = one.values(one.graph.variables)
    errors = [
        oracle(w["online/w"], w["target/w"], example_batch(), double)[0]
        for double in (True, False)
    ]
    assert not np.allclose(*errors)


def gradient_oracle(online, target, batch):
    """Of the loss towards the online weights, through Q(s_tm1) alone."""
    data, rows = batch.transition, np.arange(B)
    best = (data.s_t @ online).argmax(axis=1)
    goal = data.r_t + data.discount_t * (data.s_t @ target)[rows, best]
    error = goal - (data.s_tm1 @ online)[rows, data.a_tm1 + 1]
    slope = batch.weight * np.clip(error, -1, 1) / B
    return -np.einsum(
        "bd,ba->da", data.s_tm1, slope[:, None] * np.eye(3)[data.a_tm1 + 1]
    )


@pytest.mark.parametrize("max_norm", [1e-3, 40.0])
def test_the_first_step_is_adams(learner, max_norm):
    """At first Adam moves by rate · g / (|g| + ε): with a large ε, g is seen."""
    model = DQNModel(
        linear_network, learning_rate=0.5, adam_epsilon=1.0, max_gradient_norm=max_norm
    )
    one, batch = learner(model), example_batch()
    before = one.values(one.graph.variables)
    gradient = gradient_oracle(before["online/w"], before["target/w"], batch)
    norm = np.linalg.norm(gradient)
    clipped = gradient * min(1.0, max_norm / norm)
    got_norm, _ = one.run(
        (one.graph.metrics["gradient_norm"], one.graph.train_op), batch
    )
    after = one.values(one.graph.variables)
    np.testing.assert_allclose(got_norm, norm, rtol=1e-4)
    # ε is divided by √(1 − β₂) in TensorFlow's ("epsilon hat") form of Adam.
    corrected = 1.0 / np.sqrt(1 - 0.999)
    step = -0.5 * clipped / (abs(clipped) + corrected)
    moved = after["online/w"] - before["online/w"]
    np.testing.assert_allclose(moved, step, rtol=2e-2, atol=2e-7)
    np.testing.assert_array_equal(after["target/w"], before["target/w"])


def test_values_are_those_before_the_update(learner):
    one, batch = learner(DQNModel(linear_network, learning_rate=0.5)), example_batch()
    values = (one.graph.priorities, one.graph.metrics)
    alone = one.run(values, batch)
    together, _ = one.run((values, one.graph.train_op), batch)
    later = one.run(values, batch)
    np.testing.assert_array_equal(alone[0], together[0])
    assert alone[1] == together[1] and alone[1] != later[1]


def test_the_target_is_a_copy_only_after_its_update(learner):
    one = learner(DQNModel())
    names = [v.op.name for v in one.graph.parameters]

    def difference():
        values = one.values(one.graph.variables)
        pairs = [(values[n], values[n.replace("online", "target", 1)]) for n in names]
        return max(abs(a - b).max() for a, b in pairs)

    online = one.values(one.graph.parameters)
    assert difference() > 0
    one.session.run(one.graph.target_update_op)
    assert difference() == 0
    for name, value in one.values(one.graph.parameters).items():
        np.testing.assert_array_equal(value, online[name])
    one.run(one.graph.train_op, example_batch())
    assert difference() > 0


def test_names_are_stable_and_the_acting_graph_has_the_same_ones(learner):
    layers = ("torso/hidden_0", "torso/hidden_1", "head/value_and_advantages")
    expected = [
        f"online/{layer}/{part}" for layer in layers for part in ("kernel", "bias")
    ]
    one = learner(DQNModel())
    assert [v.op.name for v in one.graph.parameters] == expected
    with tf.Graph().as_default():
        DQNModel().build_acting(SPEC, placeholders(SPEC.observation, "observation"))
        assert [v.op.name for v in tf.global_variables()] == expected


def test_a_checkpoint_names_every_variable_once(learner):
    one = learner(DQNModel())
    names = [v.op.name for v in one.graph.variables]
    everything = one.session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    assert sorted(names) == sorted(v.op.name for v in everything)
    assert names == [v.op.name for v in learner(DQNModel()).graph.variables]


def test_the_same_seed_gives_the_same_parameters(learner):
    kernels = []
    for seed in (1, 1, 2):
        one = learner(DQNModel(), seed=seed)
        kernels.append(one.session.run(one.graph.parameters[0]))
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).any()


def test_fetched_parameters_do_not_change_with_the_next_step(learner):
    """What is being published must not be a view of the variables."""
    one = learner(DQNModel(learning_rate=0.5))
    fetch = local_callable(one.session, one.graph.parameters, [])
    fetched = fetch()
    copies = [array.copy() for array in fetched]
    one.run(one.graph.train_op, example_batch())
    for array, copy, now in zip(fetched, copies, fetch(), strict=True):
        np.testing.assert_array_equal(array, copy)
        assert (now != copy).any()


def test_a_learners_callable_trains(learner):
    """As the learner runs it: the values in the order asked for, and an update."""
    one, batch = learner(DQNModel()), example_batch()
    fetches = [one.graph.priorities, one.graph.metrics["loss"]]
    expected = one.run(fetches, batch)
    step = local_callable(
        one.session, fetches, leaves(one.inputs), [one.graph.train_op]
    )
    first, second = step(*leaves(batch)), step(*leaves(batch))
    np.testing.assert_array_equal(first[0], expected[0])
    assert first[1] == expected[1] != second[1]


def test_training_fits_rewards(learner):
    """With discount 0 the values of the taken actions approach the rewards."""
    one, batch = learner(DQNModel(learning_rate=1e-2)), example_batch()
    batch = batch._replace(
        transition=batch.transition._replace(discount_t=np.zeros(B, np.float32)),
        weight=np.ones(B, np.float32),
    )
    for _ in range(300):
        one.run(one.graph.train_op, batch)
    assert one.run(one.graph.priorities, batch).max() < 0.05


def test_a_weight_of_zero_keeps_a_row_from_training(learner):
    one, batch = learner(DQNModel(linear_network)), example_batch()
    batch = batch._replace(weight=np.zeros(B, np.float32))
    loss, norm, priorities = one.run(
        (one.graph.loss, one.graph.metrics["gradient_norm"], one.graph.priorities),
        batch,
    )
    assert loss == 0 and norm == 0 and (priorities > 0).all()


def test_images_and_the_papers_network(learner):
    frames = ArraySpec((4, 84, 84), "uint8", 0, 255, 4)
    spec = EnvironmentSpec(frames, ArraySpec((), "int64", 0, 5))

    def network(spec, observation):
        return q_network(spec, observation, nature_cnn, head_hidden=16)

    image = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
    ones = np.ones(2, np.float32)
    batch = ReplayBatch(
        Transition(image, np.array([0, 5]), ones, ones, image), ones, np.arange(2)
    )
    one = learner(DQNModel(network), spec)
    priorities, _ = one.run((one.graph.priorities, one.graph.train_op), batch)
    assert priorities.shape == (2,) and np.isfinite(priorities).all()


@pytest.mark.parametrize(
    "name",
    [
        "learning_rate",
        "adam_epsilon",
        "max_gradient_norm",
        "huber_delta",
        "target_update_period",
    ],
)
@pytest.mark.parametrize("number", [0, -1, float("nan")])
def test_a_bad_number_is_named(name, number):
    with pytest.raises(ValueError, match=f"{name} .*{number}"):
        DQNModel(**{name: number})

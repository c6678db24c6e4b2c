"""The DDPG graphs, run in a session with the single-threaded executor."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.errors import ConfigError
from distrl.core.records import ReplayBatch, Transition
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.models.ddpg import DDPGModel
from distrl.networks.placeholders import batch_placeholders, placeholders

OBSERVATION = ArraySpec((3,), "float32")
# Elements are (action − 1) / 3 and (action − 4) / 2.
ACTION = ArraySpec((2,), "float32", (-2.0, 2.0), (4.0, 6.0))
MIDDLE, HALF = np.array([1.0, 4.0]), np.array([3.0, 2.0])
SPEC = EnvironmentSpec(OBSERVATION, ACTION)
B = 6
POLICY, CRITIC = ["policy/w"], ["critic/u", "critic/v", "critic/x"]


def variable(name, shape):
    return tf.get_variable(name, shape, use_resource=True)


def linear_policy(spec, observation, num_elements):
    """μ = tanh(s · w)."""
    return tf.matmul(observation, variable("w", [observation.shape[1], num_elements]))


def bilinear_critic(spec, observation, action):
    """q = s · u + a · v + (Σ s) (a · x), with so few parameters that an oracle is
    readable."""
    u, v, x = (variable(n, [size, 1]) for n, size in zip("uvx", (3, 2, 2), strict=True))
    total = tf.reduce_sum(observation, axis=1)
    q = tf.matmul(observation, u) + tf.matmul(action, v)
    return q[:, 0] + total * tf.matmul(action, x)[:, 0]


def linear_model(**arguments):
    return DDPGModel(linear_policy, bilinear_critic, **arguments)


def policy_of(values, prefix, s):
    return np.tanh(s @ values[f"{prefix}policy/w"])


def critic_of(values, prefix, s, elements):
    u, v, x = (values[f"{prefix}critic/{name}"] for name in "uvx")
    return (s @ u + elements @ v)[:, 0] + s.sum(axis=1) * (elements @ x)[:, 0]


def elements_of(action):
    return (action - MIDDLE) / HALF


def example_batch(seed=0):
    rng = np.random.default_rng(seed)
    s_tm1, s_t = rng.normal(size=(2, B, 3)).astype(np.float32)
    return ReplayBatch(
        Transition(
            s_tm1,
            (MIDDLE + HALF * rng.uniform(-1, 1, (B, 2))).astype(np.float32),
            rng.normal(size=B).astype(np.float32),
            np.array([0.9, 0, 0.9, 0.5, 0, 0.9], np.float32),
            s_t,
        ),
        weight=rng.random(B).astype(np.float32),
        id=np.arange(B),
    )


class Learner:
    """A learning graph with a session; targets differ from what they follow."""

    def __init__(self, model, spec=SPEC):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(1)
            self.inputs = batch_placeholders(spec)
            self.graph = model.build_learning(spec, self.inputs)
            init_op = tf.variables_initializer(self.graph.variables)
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)

    def run(self, fetches, batch):
        feeds = dict(zip(leaves(self.inputs), leaves(batch), strict=True))
        return self.session.run(fetches, feeds)

    def values(self):
        variables = self.graph.variables
        names = [v.op.name for v in variables]
        return dict(zip(names, self.session.run(variables), strict=True))


@pytest.fixture
def learner():
    made = []

    def make(*args, **kwargs):
        made.append(Learner(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


def td_errors(values, batch):
    data = batch.transition
    best = policy_of(values, "target_", data.s_t)
    q_t = critic_of(values, "target_", data.s_t, best)
    taken = elements_of(data.a_tm1)
    q_tm1 = critic_of(values, "", data.s_tm1, taken)
    return data.r_t + data.discount_t * q_t - q_tm1


def critic_loss(values, batch, delta=None):
    size = np.abs(td_errors(values, batch))
    losses = size**2 / 2
    if delta is not None:
        losses = np.where(size < delta, losses, delta * (size - delta / 2))
    return np.mean(batch.weight * losses)


def policy_loss(values, batch):
    """With the importance weights left out."""
    s = batch.transition.s_tm1
    return -np.mean(critic_of(values, "", s, policy_of(values, "", s)))


def slopes(function, values, name, step=1e-4):
    """Central differences by one variable; float64."""
    values = {n: np.asarray(v, np.float64) for n, v in values.items()}
    result = np.zeros(values[name].shape)
    for index in np.ndindex(result.shape):
        for sign in (1, -1):
            moved = values[name].copy()
            moved[index] += sign * step
            result[index] += sign * function(values | {name: moved}) / (2 * step)
    return result


@pytest.mark.parametrize("delta", [None, 0.5])
def test_losses_and_priorities_are_those_before_the_step(learner, delta):
    one = learner(linear_model(huber_delta=delta, critic_learning_rate=0.5))
    for seed in range(3):
        batch, values = example_batch(seed), one.values()
        graph = one.graph
        fetches = [graph.loss, graph.priorities, graph.metrics, graph.train_op]
        loss, priorities, metrics, _ = one.run(fetches, batch)
        errors = td_errors(values, batch)
        np.testing.assert_allclose(priorities, abs(errors), rtol=1e-4, atol=1e-5)
        expected = critic_loss(values, batch, delta)
        np.testing.assert_allclose([loss, metrics["loss"]], expected, rtol=1e-4)
        np.testing.assert_allclose(
            metrics["policy_loss"], policy_loss(values, batch), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("limit", [1e3, 0.1])
def test_each_loss_moves_its_own_parameters_by_its_own_adam(learner, limit):
    """With a large epsilon a step of Adam shows the size of the gradient."""
    epsilon, rates = 10.0, {"policy": 0.3, "critic": 0.7}
    one = learner(
        linear_model(
            policy_learning_rate=rates["policy"],
            critic_learning_rate=rates["critic"],
            adam_epsilon=epsilon,
            max_gradient_norm=limit,
        )
    )
    batch, before = example_batch(), one.values()
    one.run(one.graph.train_op, batch)
    after = one.values()
    losses = {"policy": policy_loss, "critic": critic_loss}
    for scope, names in (("policy", POLICY), ("critic", CRITIC)):
        gradients = {
            name: slopes(lambda v, f=losses[scope]: f(v, batch), before, name)
            for name in names
        }
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        assert norm > 0.1
        for name, gradient in gradients.items():
            clipped = gradient * min(1.0, limit / norm)
            # Adam's bias correction scales epsilon too; the first step shows it.
            scale = np.sqrt(1 - 0.999) / (1 - 0.9)
            m, v = 0.1 * clipped, 0.001 * clipped**2
            step = rates[scope] * scale * m / (np.sqrt(v) + epsilon)
            np.testing.assert_allclose(
                before[name] - after[name], step, rtol=2e-3, atol=1e-7
            )


def test_the_critics_loss_leaves_the_policy_alone(learner):
    """And the policy's the critic: the other's learning rate is next to nothing."""
    for still, moves in ((POLICY, CRITIC), (CRITIC, POLICY)):
        rates = {"policy_learning_rate": 0.1, "critic_learning_rate": 0.1}
        rates[f"{still[0].split('/')[0]}_learning_rate"] = 1e-30
        one = learner(linear_model(**rates))
        before = one.values()
        for seed in range(3):
            one.run(one.graph.train_op, example_batch(seed))
        after = one.values()
        for name in still:
            np.testing.assert_array_equal(before[name], after[name])
        for name in moves:
            assert (before[name] != after[name]).any()


def test_targets_move_behind_the_update_in_every_step(learner):
    polyak = 0.75
    one = learner(linear_model(polyak=polyak, critic_learning_rate=0.5))
    assert one.graph.target_update_period is None
    for seed in range(3):
        before = one.values()
        one.run(one.graph.train_op, example_batch(seed))
        after = one.values()
        for name in POLICY + CRITIC:
            expected = polyak * before[f"target_{name}"] + (1 - polyak) * after[name]
            got = after[f"target_{name}"]
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
            assert (after[name] != before[name]).any()


def test_the_target_update_copies(learner):
    one = learner(linear_model())
    values = one.values()
    assert any((values[n] != values[f"target_{n}"]).any() for n in POLICY + CRITIC)
    one.session.run(one.graph.target_update_op)
    values = one.values()
    for name in POLICY + CRITIC:
        np.testing.assert_array_equal(values[name], values[f"target_{name}"])


def test_nothing_but_the_train_op_changes_anything(learner):
    one = learner(linear_model())
    before = one.values()
    one.run([one.graph.loss, one.graph.priorities, one.graph.metrics], example_batch())
    for name, value in one.values().items():
        np.testing.assert_array_equal(before[name], value)


def test_parameters_are_those_of_the_acting_graph_in_its_order(learner):
    one = learner(DDPGModel())
    with tf.Graph().as_default():
        observation = placeholders(SPEC.observation, "observation")
        DDPGModel().build_acting(
            SPEC, observation, tf.placeholder("float32", [None, 2])
        )
        acting = [v.op.name for v in tf.global_variables()]
    assert [v.op.name for v in one.graph.parameters] == acting
    every = [v.op.name for v in one.graph.variables]
    assert len(set(every)) == len(every) and set(acting) < set(every)
    assert every == [v.op.name for v in learner(DDPGModel()).graph.variables]


class Acting:
    """The acting and the greedy graph, with equal parameters."""

    def __init__(self, model, spec=SPEC):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(3)
            observation = placeholders(spec.observation, "observation")
            noise = tf.placeholder(tf.float32, [None, 2], "noise")
            acting = model.build_acting(spec, observation, noise)
            action, others = model.build_greedy(spec, observation)
            self.variables = tf.global_variables()
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)
        self.act = local_callable(self.session, acting, [observation, noise])
        outputs = [action, others["value"]]
        self.greedy = local_callable(self.session, outputs, [observation])

    def values(self):
        names = [v.op.name for v in self.variables]
        return dict(zip(names, self.session.run(self.variables), strict=True))


def test_actions_with_noise_stay_within_bounds_and_are_valued_as_they_are():
    acting, rng = Acting(linear_model()), np.random.default_rng(0)
    s = rng.normal(size=(50, 3)).astype(np.float32)
    noise = rng.normal(size=(50, 2)).astype(np.float32)
    action, taken, best = acting.act(s, noise)
    values = acting.values()
    acting.session.close()
    mu = policy_of(values, "", s)
    elements = np.clip(mu + noise, -1, 1)
    assert (np.abs(mu + noise) > 1).any() and action.dtype == np.float32
    expected = MIDDLE + HALF * elements
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
    assert (action >= ACTION.minimum).all() and (action <= ACTION.maximum).all()
    np.testing.assert_allclose(
        taken, critic_of(values, "", s, elements), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(best, critic_of(values, "", s, mu), rtol=1e-4, atol=1e-4)


def test_the_greedy_action_is_the_policys():
    acting = Acting(linear_model())
    s = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    action, value = acting.greedy(s)
    silent, _, best = acting.act(s, np.zeros((9, 2), np.float32))
    acting.session.close()
    np.testing.assert_array_equal(action, silent)
    np.testing.assert_allclose(value, best, rtol=1e-5)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (ArraySpec((), "int64", 0, 1), "int64"),
        (ArraySpec((2,), "float32"), r"finite bounds.*None"),
        (ArraySpec((2,), "float32", (-1.0, -np.inf), 1.0), "finite bounds.*inf"),
        (ArraySpec((2,), "float32", 1.0, 1.0), r"finite bounds.*\[1.0, 1.0\]"),
        ({"a": ACTION, "b": ACTION}, "one array of real numbers.*'a'"),
    ],
)
def test_other_actions_are_refused_by_name(action, words):
    with pytest.raises(ConfigError, match=words):
        DDPGModel().check(EnvironmentSpec(OBSERVATION, action))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("policy_learning_rate", 0.0),
        ("critic_learning_rate", -1.0),
        ("adam_epsilon", 0.0),
        ("max_gradient_norm", float("nan")),
        ("huber_delta", 0.0),
        ("polyak", 1.0),
        ("polyak", -0.1),
    ],
)
def test_bad_numbers_are_refused_by_name(name, number):
    with pytest.raises(ValueError, match=f"{name} must be .*{number}"):
        DDPGModel(**{name: number})


def test_it_finds_the_best_of_a_known_critic(learner):
    """One state, reward −(a − 2)² with a from −2 to 4: the policy goes to 2."""
    one_number = ArraySpec((1,), "float32")
    spec = EnvironmentSpec(one_number, ArraySpec((1,), "float32", -2, 4))
    rates = {"policy_learning_rate": 3e-3, "critic_learning_rate": 1e-2}
    one = learner(DDPGModel(linear_policy, **rates), spec)
    rng = np.random.default_rng(0)
    ones, none = np.ones((64, 1), np.float32), np.zeros(64, np.float32)
    for _ in range(400):
        a = rng.uniform(-2, 4, (64, 1)).astype(np.float32)
        transition = Transition(ones, a, -((a[:, 0] - 2) ** 2), none, ones)
        batch = ReplayBatch(transition, np.ones(64, np.float32), np.arange(64))
        one.run(one.graph.train_op, batch)
    action = 1 + 3 * np.tanh(one.values()["policy/w"].item())
    assert abs(action - 2) < 0.3


def test_all_that_is_read_is_read_before_anything_is_updated(learner):
    """In every order of execution, not only in that of this executor."""
    built = learner(linear_model()).graph
    updates = [
        op
        for op in built.train_op.graph.get_operations()
        if op.type == "ResourceApplyAdam"
    ]
    assert len(updates) == len(POLICY + CRITIC)
    read = {tensor.op for tensor in [built.priorities, *built.metrics.values()]}
    for update in updates:
        assert read <= ancestors(update)


def ancestors(op):
    """All that must have run before it."""
    found, front = set(), [op]
    while front:
        op = front.pop()
        before = {tensor.op for tensor in op.inputs} | set(op.control_inputs)
        front.extend(before - found)
        found |= before
    return found

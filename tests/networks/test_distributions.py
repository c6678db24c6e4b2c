"""Distributions of whole actions: which kind a leaf gets, and how leaves add up."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from graph_runs import run

from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, leaves
from distrl.networks.categorical import Categorical
from distrl.networks.distributions import action_distribution
from distrl.networks.gaussian import DiagonalGaussian
from distrl.networks.squashed_gaussian import SquashedGaussian

DISCRETE = ArraySpec((), "int64", 1, 3)
REAL = ArraySpec((2,), "float64", -1.0, 1.0)
NEST = {"turn": DISCRETE, "push": (REAL, ArraySpec((), "float32", 0.0, 5.0))}
B = 3


def parts_of(spec, **options):
    factory = action_distribution(spec, **options)
    with tf.Graph().as_default():
        return factory(tf.zeros([1, factory.num_parameters])).parts


@pytest.mark.parametrize(
    ("spec", "options", "kind", "size"),
    [
        (DISCRETE, {}, Categorical, 3),
        (DISCRETE, {"squash": True}, Categorical, 3),
        (ArraySpec((4,), "int8", 0, 1), {}, Categorical, 8),
        (REAL, {}, DiagonalGaussian, 2),
        (REAL, {"state_dependent_std": True}, DiagonalGaussian, 4),
        (REAL, {"squash": True}, SquashedGaussian, 2),
    ],
)
def test_the_kind_follows_from_the_spec(spec, options, kind, size):
    assert action_distribution(spec, **options).num_parameters == size
    assert [type(part) for part in parts_of(spec, **options)] == [kind]


def test_a_nest_has_a_part_a_leaf_in_the_specs_order():
    kinds = [type(part) for part in parts_of(NEST, squash=True)]
    assert kinds == [SquashedGaussian, SquashedGaussian, Categorical]
    assert action_distribution(NEST).num_parameters == 2 + 1 + 3
    raw = action_distribution(NEST, squash=True).raw_spec
    assert raw["turn"] == DISCRETE
    assert raw["push"] == (ArraySpec((2,), "float32"), ArraySpec((), "float32"))


def nest_example():
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, B, 6)).astype(np.float32)
    push = rng.normal(size=(B, 2)), rng.normal(size=B)
    action = [each.astype(np.float32) for each in push] + [rng.integers(1, 4, B)]
    return p, q, *action


def test_a_nests_numbers_are_sums_over_its_leaves():
    whole = action_distribution(NEST, squash=True)
    single = [action_distribution(leaf, squash=True) for leaf in leaves(NEST)]

    def numbers(factory, p, q, action):
        p, q = factory(p), factory(q)
        return tf.stack([p.log_prob(action), p.entropy(), p.kl(q)])

    def build(p, q, push_0, push_1, turn):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            action = {"turn": turn, "push": (push_0, push_1)}
            together = numbers(whole, p, q, action)
        parts = []
        for i, a in enumerate((push_0, push_1, turn)):
            with tf.variable_scope(f"leaf_{i}", reuse=tf.AUTO_REUSE):
                own = [tf.split(each, [2, 1, 3], axis=1)[i] for each in (p, q)]
                parts.append(numbers(single[i], *own, a))
        return together, tf.stack(parts)

    together, parts = run(build, nest_example())
    assert together.shape == (3, B)
    np.testing.assert_allclose(together, parts.sum(0), rtol=1e-5, atol=1e-6)


def test_the_variables_of_several_leaves_have_names_of_their_own():
    with tf.Graph().as_default():
        with tf.variable_scope("online", reuse=tf.AUTO_REUSE):
            for _ in range(2):
                action_distribution(NEST)(tf.zeros([1, 6]))
        names = [v.op.name for v in tf.global_variables()]
    expected = ["online/action_push_0/log_std", "online/action_push_1/log_std"]
    assert names == expected


def test_leaves_with_equal_distributions_are_sampled_independently():
    spec = (ArraySpec((), "float32"), ArraySpec((), "float32"))
    factory = action_distribution(spec)

    def build(p):
        policy = factory(p)
        return policy.sample([7, 0]), policy.sample([7, 1]), policy.sample([7, 0])

    one, other, again = run(build, (np.zeros((4000, 2), np.float32),))
    streams = np.stack([*one, *other])
    apart = np.corrcoef(streams)[~np.eye(4, dtype=bool)]
    assert abs(apart).max() < 0.06
    np.testing.assert_array_equal(one, again)


def test_samples_and_modes_are_nests_that_reach_the_environment():
    factory = action_distribution(NEST, squash=True)

    def build(p):
        policy = factory(p)
        sample = policy.sample([1, 2])
        return sample, policy.mode(), factory.to_environment_graph(sample)

    sample, mode, graph_action = run(build, (nest_example()[0],))
    action = factory.to_environment(sample)
    assert set(mode) == set(sample) == set(NEST)
    for spec, raw, ours, theirs in zip(
        leaves(NEST), leaves(sample), leaves(action), leaves(graph_action), strict=True
    ):
        assert ours.dtype == theirs.dtype == spec.dtype
        assert raw.shape == ours.shape == theirs.shape == (B, *spec.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert (ours >= spec.minimum).all() and (ours <= spec.maximum).all()
    assert (action["push"][1] != sample["push"][1]).any()


@pytest.mark.parametrize("squash", [False, True])
def test_no_operation_is_control_flow(squash):
    """The executor of local sessions takes none; nor does it say so at once."""
    factory = action_distribution(NEST, squash=squash)
    with tf.Graph().as_default() as graph:
        p = tf.placeholder(tf.float32, [None, 6])
        policy = factory(p)
        sample = policy.sample(tf.placeholder(tf.int32, [2]))
        total = policy.log_prob(sample) + policy.entropy() + policy.kl(policy)
        tf.gradients(total, [p, *tf.trainable_variables()])
        factory.to_environment_graph(policy.mode())
        kinds = {operation.type for operation in graph.get_operations()}
    assert "StatelessMultinomial" in kinds
    flow = {"Switch", "Merge", "Enter", "Exit", "If", "While", "Assert", "StatelessIf"}
    assert not kinds & (flow | {"StatelessWhile"})


def test_half_precision_is_widened():
    factory = action_distribution(DISCRETE)
    with tf.Graph().as_default():
        policy = factory(tf.placeholder(tf.float16, [None, 3]))
        assert policy.entropy().dtype == tf.float32


@pytest.mark.parametrize("shape", [[None, 2], [None, None], [3], None, [1, 3, 1]])
def test_parameters_of_another_width_are_refused(shape):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"\[B, 3\]"):
        action_distribution(DISCRETE)(tf.placeholder(tf.float32, shape))


def test_kl_of_another_kind_is_refused():
    with tf.Graph().as_default():
        one = action_distribution(REAL)(tf.zeros([1, 2]))
        other = action_distribution(REAL, squash=True, state_dependent_std=True)
        with pytest.raises(ValueError, match="SquashedGaussian"):
            one.kl(other(tf.zeros([1, 4])))


@pytest.mark.parametrize(
    ("spec", "options", "match"),
    [
        ({"a": ArraySpec((), "int64")}, {}, "leaf 'a'.*bounds"),
        (ArraySpec((2,), "float32"), {"squash": True}, "finite bounds"),
        (ArraySpec((), "bool"), {}, "bool"),
        (ArraySpec((), "complex64"), {}, "complex64"),
    ],
)
def test_other_actions_are_refused_by_name(spec, options, match):
    with pytest.raises(ConfigError, match=match):
        action_distribution(spec, **options)

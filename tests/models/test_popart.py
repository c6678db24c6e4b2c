"""Normalised values: what moves with the statistics, and what must not."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from impala_graphs import Learner, example_unrolls

from distrl.cluster.local_session import local_session_config
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.losses.returns import step_mask
from distrl.models.gradient_optimizers import adam
from distrl.models.impala import ImpalaModel
from distrl.models.popart import PopArt
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.layers import dense

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))
T, U = 5, 6
STATISTICS = ("network/popart/mean", "network/popart/second_moment")


class Head:
    """Values [4] of four fixed observations, and updates by targets."""

    def __init__(self, popart):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(3)
            rows = tf.constant(np.random.default_rng(3).normal(size=(4, 3)), tf.float32)
            with tf.variable_scope("network"):
                raw = tf.squeeze(dense(rows, 1, "value_head"), 1)
            self.raw, self.value = raw, popart.unnormalised(raw)
            self.statistics = popart.statistics()
            self.std = popart.std(*self.statistics)
            self.targets = tf.placeholder(tf.float64, [None])
            self.update = popart.build_update(
                tf.cast(tf.size(self.targets), tf.float64),
                tf.reduce_sum(self.targets),
                tf.reduce_sum(tf.square(self.targets)),
            )
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)

    def train(self, targets):
        self.session.run(self.update, {self.targets: targets})

    def get(self, name):
        return self.session.run(getattr(self, name))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_normalised_targets_have_mean_0_and_deviation_1(made, scale):
    head = made(Head, PopArt(step_size=1.0))
    targets = scale * (7.0 + 2.0 * np.random.default_rng(0).normal(size=100))
    head.train(targets)
    mean, std = head.get("statistics").mean, head.get("std")
    normal = (targets - mean) / std
    np.testing.assert_allclose([normal.mean(), normal.std()], [0.0, 1.0], atol=1e-4)
    np.testing.assert_allclose(normal * std + mean, targets)


def test_no_value_changes_when_the_statistics_do(made):
    head, rng = made(Head, PopArt(step_size=0.3)), np.random.default_rng(1)
    before, raw = head.get("value"), head.get("raw")
    np.testing.assert_allclose(before, raw, rtol=1e-6)  # mean 0, deviation 1 at first
    for _ in range(20):
        head.train(rng.normal(40.0, 9.0, 50))
    np.testing.assert_allclose(head.get("value"), before, rtol=1e-4, atol=1e-4)
    assert head.get("statistics").mean > 30
    assert abs(head.get("raw") - raw).max() > 0.5


def test_the_moments_follow_the_equations(made):
    head, rng = made(Head, PopArt(step_size=0.3)), np.random.default_rng(2)
    mean, second = 0.0, 1.0
    for _ in range(4):
        targets = rng.normal(5.0, 3.0, 8)
        head.train(targets)
        mean += 0.3 * (targets.mean() - mean)
        second += 0.3 * ((targets**2).mean() - second)
    np.testing.assert_allclose(head.get("statistics"), (mean, second))
    np.testing.assert_allclose(head.get("std"), np.sqrt(second - mean**2))


def test_the_deviation_is_kept_within_its_limits(made):
    head = made(Head, PopArt(step_size=1.0, min_std=0.5, max_std=20.0))
    before = head.get("value")
    for targets, std in (([3.0, 3.0], 0.5), ([-500.0, 500.0], 20.0)):
        head.train(targets)
        np.testing.assert_allclose(head.get("std"), std)
        np.testing.assert_allclose(head.get("value"), before, rtol=1e-4, atol=1e-4)


def test_no_targets_move_nothing(made):
    head = made(Head, PopArt(step_size=1.0))
    head.train([4.0, 8.0])
    before = head.get("statistics"), head.get("raw")
    head.train([])
    assert head.get("statistics") == before[0]
    np.testing.assert_array_equal(head.get("raw"), before[1])


@pytest.mark.parametrize("options", [{"step_size": 0}, {"step_size": 1.5}])
def test_bad_step_sizes_are_refused(options):
    with pytest.raises(ValueError, match=f"step_size .* got {options['step_size']}"):
        PopArt(**options)


@pytest.mark.parametrize("options", [{"min_std": 0.0}, {"min_std": 2, "max_std": 1}])
def test_bad_limits_are_refused(options):
    with pytest.raises(ValueError, match=f"min_std {options['min_std']}"):
        PopArt(**options)


def small_network(spec, observation, num_parameters):
    value = tf.squeeze(dense(observation, 1, "value_head"), 1)
    return dense(observation, num_parameters, "policy_head"), value


def test_a_network_without_the_head_is_refused():
    with pytest.raises(ValueError, match=r"'baseline'.*\[\]"):
        Learner(
            ImpalaModel(small_network, popart=PopArt(value_head="baseline")), SPEC, T
        )


def test_the_loss_is_in_units_of_the_deviation(made):
    """The same parameters with and without statistics that change no value."""
    plain = ImpalaModel(small_network)
    data = example_unrolls(plain, SPEC, T, U, 0)
    data = data._replace(reward=5 * data.reward)
    model = ImpalaModel(small_network, popart=PopArt(step_size=0.5))
    one = made(Learner, model, SPEC, T)
    other = made(Learner, plain, SPEC, T)
    values = one.values()
    other.assign([values[name] for name in other.values()])
    expected = other.run(other.graph.metrics, data)
    one.run(one.graph.train_op, data, 0.0)
    moved = one.values()
    mean, second = (moved[name.removeprefix("network/")] for name in STATISTICS)
    std = np.sqrt(second - mean**2)
    assert mean != 0 and abs(std - 1) > 0.2
    got = one.run(one.graph.metrics, data)
    scales = {"policy_loss": std, "baseline_loss": std**2, "entropy": 1.0}
    for name, scale in scales.items():
        np.testing.assert_allclose(got[name] * scale, expected[name], rtol=1e-4)


def test_the_statistics_are_those_of_the_steps_that_count(made):
    model = ImpalaModel(small_network, discount=0.0, popart=PopArt(step_size=1.0))
    data = example_unrolls(model, SPEC, T, U, 1)
    # On-policy: both policies choose either action with probability 1/2.
    data = data._replace(behaviour=np.zeros_like(data.behaviour))
    mask = step_mask(data.terminated.T, data.truncated.T, data.first_is_last).T
    assert not mask.all()
    whole = made(Learner, model, SPEC, T)
    split = made(Learner, model, SPEC, T, towers=True)
    for one in (whole, split):
        values = one.values()
        zero = {n: 0 * x if "policy" in n else x for n, x in values.items()}
        one.assign(zero.values())
        one.run(one.graph.train_op, data, 0.0)
        values = one.values()
        targets = data.reward[mask].astype(np.float64)
        got = [values[name.removeprefix("network/")] for name in STATISTICS]
        expected = [targets.mean(), (targets**2).mean()]
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_statistics_are_parameters_and_not_trained(made):
    model = ImpalaModel(core=RecurrentCore(size=4), popart=PopArt())
    one = made(Learner, model, SPEC, 2)
    names = [v.op.name for v in one.graph.parameters]
    assert set(STATISTICS) < set(names)
    with one.session.graph.as_default():
        trained = [v.op.name for v in tf.trainable_variables()]
    assert set(names) - set(trained) == set(STATISTICS)
    before = one.values()
    one.run(one.graph.train_op, example_unrolls(model, SPEC, 2, U, 0), 0.01)
    assert all((one.values()[n] != array).any() for n, array in before.items())


@pytest.mark.parametrize(("popart", "solves"), [(PopArt(0.05), True), (None, False)])
def test_large_rewards_are_learned_as_fast_as_small_ones(made, popart, solves):
    """r = 1000 + 300 o₀ is far from what a value starts with."""
    model = ImpalaModel(
        small_network,
        discount=0.0,
        gradient_optimizer=adam,
        loss_reduction="mean",
        popart=popart,
    )
    one = made(Learner, model, SPEC, T)
    for seed in range(300):
        data = example_unrolls(model, SPEC, T, U, seed)
        behaviour = np.zeros_like(data.behaviour)
        reward = 1000 + 300 * data.observation[:, :-1, 0]
        one.run(
            one.graph.train_op, data._replace(behaviour=behaviour, reward=reward), 0.1
        )
    values = one.values()
    mean, std = 0.0, 1.0
    if popart:
        mean, second = (values[n.removeprefix("network/")] for n in STATISTICS)
        std = np.sqrt(second - mean**2)
    bias = values["value_head/bias"] * std + mean
    slope = values["value_head/kernel"][0] * std
    near = abs(bias - 1000) < 50 and abs(slope - 300) < 50
    assert bool(near) == solves, (bias, slope)

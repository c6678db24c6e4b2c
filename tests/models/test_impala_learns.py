"""IMPALA solves a small problem although its actors lag behind."""

import functools

import numpy as np
import tensorflow.compat.v1 as tf
from impala_graphs import Actor, Learner

from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.core.trajectories import Trajectories
from distrl.models.gradient_optimizers import adam
from distrl.models.impala import ImpalaModel


def test_a_lagging_behaviour_still_solves_a_chain(made):
    """Four places in a row, the way to the right is worth 1 at its end, and the first
    reward to be had is a small one on the left. Actors are 8 updates behind."""
    size, lag = 4, 8
    spec = EnvironmentSpec(
        ArraySpec((), "int64", 0, size - 1), ArraySpec((), "int64", 0, 1)
    )
    model = ImpalaModel(
        functools.partial(tabular_network, size),
        discount=0.9,
        gradient_optimizer=adam,
        loss_reduction="mean",
    )
    one, actor = made(Learner, model, spec, 10), made(Actor, model, spec)
    chain, norms, kls = Chain(size, 16), [], []
    for step in range(240):
        if step % lag == 0:
            actor.load(one)
        metrics, _ = one.run(
            (one.graph.metrics, one.graph.train_op), chain.unroll(actor, 10), 0.03
        )
        norms.append(metrics["gradient_norm"])
        kls.append(metrics["approximate_kl"])
    logits = one.values()["w"]
    assert (logits[:, 1] - logits[:, 0] > 2).all() and np.isfinite(norms).all()
    assert max(kls) > 0.005  # it was off-policy indeed
    # Three more steps to the end, then two, one and none.
    np.testing.assert_allclose(
        one.values()["u"][:, 0], 0.9 ** np.arange(size - 1, -1, -1), atol=0.12
    )


def tabular_network(size, spec, observation, num_parameters):
    rows = tf.one_hot(observation, size)
    w = tf.get_variable(
        "w", [size, num_parameters], initializer=tf.zeros_initializer, use_resource=True
    )
    u = tf.get_variable(
        "u", [size, 1], initializer=tf.zeros_initializer, use_resource=True
    )
    return tf.matmul(rows, w), tf.squeeze(tf.matmul(rows, u), 1)


class Chain:
    """N streams; action 1 goes right, 0 ends the episode with 0.1, and so does the step
    from the last place with 1; every sixth step of a stream is a truncation."""

    def __init__(self, size, num_streams):
        self._size, self._steps = size, 0
        self._place = np.arange(num_streams) % size
        self._last = np.zeros(num_streams, bool)

    def unroll(self, actor, num_steps):
        first_is_last, rows, version = self._last, [], 0
        for _ in range(num_steps):
            place, acted = self._place, actor.act(self._place)
            rows.append((place, acted.raw_action, acted.behaviour, *self._step(acted)))
        columns = [np.stack(x, 1) for x in zip(*rows, strict=True)]
        observation = np.c_[columns[0], self._place]
        versions = np.full(columns[0].shape, version)
        return Trajectories(observation, *columns[1:], first_is_last, (), versions)

    def _step(self, acted):
        right, place, last = acted.raw_action == 1, self._place, self._last
        self._steps += 1
        at_end = right & (place == self._size - 1)
        reward = np.where(right, at_end.astype(np.float32), np.float32(0.1))
        terminated = ~last & (~right | at_end)
        cut = self._steps + np.arange(len(place))
        truncated = ~last & ~terminated & (cut % 6 == 0)
        begin = np.arange(len(place)) % self._size
        moved = np.minimum(place + 1, self._size - 1)
        self._place = np.where(last, begin, moved)
        self._last = terminated | truncated
        reward = np.where(last, np.float32(50), reward)  # counts for nothing
        return reward, terminated, truncated

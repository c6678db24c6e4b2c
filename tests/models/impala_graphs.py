"""Learning and acting graphs of IMPALA with sessions, and data for them."""

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.variables import build_loading
from distrl.cluster.local_session import local_callable, local_session_config
from distrl.core.nests import map_nest, unflatten_as
from distrl.core.specs import leaves
from distrl.models.impala_batch import time_major
from distrl.networks.placeholders import placeholders


class Parameters:
    """Those of a graph, by name."""

    session, parameters, loading = None, (), None

    def values(self):
        names = [v.op.name.removeprefix("network/") for v in self.parameters]
        return dict(zip(names, self.session.run(self.parameters), strict=True))

    def load(self, other):
        self.assign(other.values().values())

    def assign(self, arrays):
        placeholders_, op = self.loading
        self.session.run(op, dict(zip(placeholders_, arrays, strict=True)))

    def randomise(self, seed):
        rng = np.random.default_rng(seed)
        new = [rng.normal(0, 0.5, v.shape) for v in self.values().values()]
        self.assign([array.astype(np.float32) for array in new])


class Learner(Parameters):
    """A learning graph; what a caller of ImpalaModel has to write."""

    def __init__(self, model, spec, num_steps, towers=False, seed=1):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(seed)
            self.inputs = placeholders(model.trajectories_spec(spec, num_steps), "in")
            self.rate = tf.placeholder(tf.float32, [])
            if towers:
                self.graph = self._split(model, spec)
            else:
                batch = time_major(self.inputs)
                self.graph = model.build_learning(spec, batch, self.rate)
            init_op = tf.global_variables_initializer()
            self.everything = tf.global_variables()
            self.parameters = self.graph.parameters
            self.loading = build_loading(self.parameters)
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)

    def _split(self, model, spec):
        """Two towers, one of the first four unrolls and one of the others."""
        parts = [
            time_major(map_nest(lambda leaf, at=cut: leaf[at], self.inputs))
            for cut in (slice(None, 4), slice(4, None))
        ]
        towers = [model.build_tower(spec, part) for part in parts]
        return model.build_apply(towers, self.rate)

    def run(self, fetches, data, learning_rate=0.0):
        feeds = dict(zip(leaves(self.inputs), leaves(data), strict=True))
        return self.session.run(fetches, {**feeds, self.rate: learning_rate})


class Actor(Parameters):
    """An acting graph; every call has a seed of its own."""

    def __init__(self, model, spec):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(2)
            observation = placeholders(spec.observation, "observation")
            seed = tf.placeholder(tf.int32, [2])
            core = placeholders(model.core_spec, "core_state")
            self._graph = model.build_acting(spec, observation, seed, core)
            self.parameters = tf.global_variables()
            self.loading = build_loading(self.parameters)
            init_op = tf.global_variables_initializer()
            graph.finalize()
        self.session = tf.Session(graph=graph, config=local_session_config())
        self.session.run(init_op)
        feeds = [*leaves(observation), *leaves(core), seed]
        self._call = local_callable(self.session, leaves(self._graph), feeds)
        self._steps = 0

    def act(self, observation, core_state=()):
        """An ActingGraph of arrays."""
        self._steps += 1
        seed = np.array([0, self._steps], np.int32)
        arrays = self._call(*leaves(observation), *leaves(core_state), seed)
        return unflatten_as(self._graph, arrays)


def example_unrolls(model, spec, num_steps, num_unrolls, seed):
    """Trajectories of random numbers, episodes ending in many places."""
    rng = np.random.default_rng(seed)

    def leaf(each, *leading):
        shape = (*leading, *each.shape)
        if each.dtype == "bool":
            return rng.random(shape) < 0.25
        if np.issubdtype(np.dtype(each.dtype), np.integer):
            return rng.integers(each.minimum or 0, (each.maximum or 0) + 1, shape)
        return rng.normal(size=shape).astype(each.dtype)

    def steps(nest, number):
        return map_nest(lambda each: leaf(each, num_unrolls, number), nest)

    shapes = model.trajectories_spec(spec, num_steps)
    raw = model.distribution(spec.action).raw_spec
    return map_nest(lambda each: leaf(each, num_unrolls), shapes)._replace(
        observation=steps(spec.observation, num_steps + 1),
        raw_action=steps(raw, num_steps),
        first_is_last=np.arange(num_unrolls) % 3 == 1,
    )

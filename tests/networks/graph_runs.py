"""Graphs of functions of arrays, run as actors and learners run theirs."""

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config


def run(build, arrays, gradients_of=None, variables=None):
    """What `build(*placeholders)` returns for these arrays.

    The placeholders' first sizes are unknown. With `gradients_of`, a function of what
    was built, also the gradients of its sum towards each float array, None for none.
    `variables` are written to before, by name.
    """
    arrays = [np.asarray(array) for array in arrays]
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        ph = [tf.placeholder(a.dtype, [None, *a.shape[1:]]) for a in arrays]
        fetches = built = build(*ph)
        if gradients_of is not None:
            floats = [p for p in ph if p.dtype.is_floating]
            gradients = iter(tf.gradients(gradients_of(built), floats))
            each = [next(gradients) if p.dtype.is_floating else None for p in ph]
            fetches = (built, {i: g for i, g in enumerate(each) if g is not None})
        writes = [v.assign((variables or {})[v.op.name]) for v in _named(variables)]
        init_op = tf.global_variables_initializer()
        graph.finalize()
        with tf.Session(graph=graph, config=local_session_config()) as session:
            session.run(init_op)
            session.run(writes)
            return session.run(fetches, dict(zip(ph, arrays, strict=True)))


def _named(variables):
    return [v for v in tf.global_variables() if v.op.name in (variables or {})]


def differences(function, x, step=1e-3):
    """Central finite differences of a scalar function of one array, float64."""
    slopes = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        moved = [x.astype(np.float64), x.astype(np.float64)]
        moved[0][index] += step
        moved[1][index] -= step
        slopes[index] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return slopes

"""Local sessions, and calls into them without the cost of `session.run`."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_callable, local_session_config


def test_a_callable_runs_targets_and_counts_its_arguments():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], "x")
        total = tf.get_variable(
            "t", [], initializer=tf.zeros_initializer(), use_resource=True
        )
        add = total.assign_add(x, read_value=False)
        session = tf.Session(config=local_session_config())
    session.run(total.initializer)
    run = local_callable(session, [], [x], [add])
    for number in (2, 3):
        assert run(np.array(number, np.float32)) == []
    assert session.run(total) == 5
    with pytest.raises(ValueError, match="expected 1 arrays, got 2"):
        run(np.zeros(()), np.zeros(()))
    session.close()


def test_local_session_config():
    config = local_session_config(2)
    assert config.intra_op_parallelism_threads == 2
    assert config.inter_op_parallelism_threads == 1
    assert config.experimental.executor_type == "SINGLE_THREADED_EXECUTOR"
    assert config.device_count["GPU"] == 0
    assert "GPU" not in local_session_config(gpu=True).device_count
    with pytest.raises(ValueError, match="0"):
        local_session_config(0)


def test_denormal_numbers_count_as_zero_but_only_inside():
    """As on TensorFlow's own threads; what NumPy does around it stays exact."""
    small = np.full(100, 1e-30, np.float32)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], "x")
        session = tf.Session(config=local_session_config())
        run = local_callable(session, [x * 1e-9, x * 1e25], [x])
        checked = local_callable(session, [tf.debugging.check_numerics(x, "x")], [x])
    denormal, normal = run(small)
    assert (denormal == 0).all() and (normal > 0).all()
    for fails in (False, True):
        if fails:
            with pytest.raises(tf.errors.InvalidArgumentError):
                checked(np.full(3, np.nan, np.float32))
        assert (small * np.float32(1e-9) > 0).all()
    session.close()

import math
import subprocess
import sys

import numpy as np
import pytest


def test_no_module_of_metrics_imports_tensorflow():
    code = """
import importlib, pkgutil, sys, distrl.metrics
for module in pkgutil.iter_modules(distrl.metrics.__path__, "distrl.metrics."):
    importlib.import_module(module.name)
assert "distrl.metrics.tensorboard" in sys.modules
assert not {"tensorflow", "rich"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_events_can_be_read_back(tmp_path):
    import tensorflow.compat.v1 as tf

    from distrl.metrics.tensorboard import TensorBoardWriter

    writer = TensorBoardWriter(tmp_path / "events")
    writer.write({"a": 1.5, "b/c": np.float32(2.0), "d": math.nan}, step=np.int64(7))
    with tf.Graph().as_default():
        writer.write({"a": 2.5}, step=8)
    writer.write({"a": math.nan}, step=9)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="10"):
        writer.write({"a": 0.0}, step=10)
    (path,) = (tmp_path / "events").iterdir()
    found = [
        (event.step, value.tag, value.simple_value)
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert found == [(7, "a", 1.5), (7, "b/c", 2.0), (8, "a", 2.5)]


def test_a_disk_that_refuses_is_named_once_and_used_again_when_it_works(
    tmp_path, caplog
):
    import tensorflow.compat.v1 as tf

    from distrl.metrics.tensorboard import TensorBoardWriter

    folder = tmp_path / "events"
    folder.write_text("in the way")
    writer = TensorBoardWriter(folder)
    for step in range(3):
        writer.write({"a": 1.0}, step)
    (record,) = caplog.records
    assert str(folder) in record.getMessage() and "exists" in record.getMessage()
    folder.unlink()
    writer.write({"a": 1.0}, step=3)
    writer.close()
    (path,) = folder.iterdir()
    first, second = tf.train.summary_iterator(str(path))
    assert first.file_version == "brain.Event:2" and second.step == 3

"""Exports: what another program sees of them, what they replace."""

import json
import resource
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.checkpoints.export import export_saved_model, input_names
from distrl.checkpoints.policy import GreedyPolicy, LocalPolicy
from distrl.core.errors import ConfigError
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel

VECTOR = EnvironmentSpec(ArraySpec((4,), "float32"), ArraySpec((), "int32", -1, 2))
NEST = EnvironmentSpec(
    {
        "body": {"joints": ArraySpec((3,), "float64")},
        "mode": ArraySpec((), "int64", 1, 4),
    },
    ArraySpec((), "int64", 0, 2),
)

# Runs in a folder of its own and without PYTHONPATH: no distrl there.
CHILD = """
import importlib.util, sys
import numpy as np, tensorflow as tf
if importlib.util.find_spec("distrl"):
    sys.modules["distrl"] = None
directory, inputs, outputs = sys.argv[1:]
policy = tf.saved_model.load(directory).signatures["serving_default"]
with np.load(inputs) as file:
    arrays = {name: file[name] for name in file}
result = policy(**{name: tf.constant(array) for name, array in arrays.items()})
one = policy(**{name: tf.constant(array[:1]) for name, array in arrays.items()})
assert one["action"].shape == (1,)
assert sorted(result) == ["action", "action_values"]
np.savez(outputs, **{name: tensor.numpy() for name, tensor in result.items()})
"""


def parameters(spec, seed=0):
    """Random parameters by name: with them actions differ between observations."""
    rng = np.random.default_rng(seed)
    policy = LocalPolicy(DQNModel(), spec)
    policy.close()
    return {
        p.name: rng.normal(size=p.shape).astype(p.dtype) for p in policy.parameter_specs
    }


def observations(spec):
    rng = np.random.default_rng(1)
    if spec is VECTOR:
        return rng.normal(size=(100, 4)).astype(np.float32)
    return {
        "body": {"joints": rng.normal(size=(100, 3))},
        "mode": rng.integers(1, 5, 100),
    }


@pytest.mark.parametrize("spec", [VECTOR, NEST], ids=["vector", "nest"])
def test_another_process_gets_the_same_greedy_actions(spec, tmp_path):
    named, observation = parameters(spec), observations(spec)
    export_saved_model(DQNModel(), spec, named, tmp_path / "export")
    inputs = zip(input_names(spec.observation), leaves(observation), strict=True)
    np.savez(tmp_path / "inputs.npz", **dict(inputs))
    files = [str(tmp_path / name) for name in ("export", "inputs.npz", "outputs.npz")]
    subprocess.run([sys.executable, "-c", CHILD, *files], check=True, cwd=tmp_path)
    policy = GreedyPolicy(DQNModel(), spec, named)
    expected = policy.act(observation)
    policy.close()
    with np.load(tmp_path / "outputs.npz") as outputs:
        action, values = outputs["action"], outputs["action_values"]
    assert action.dtype == expected.dtype and len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_array_equal(values.argmax(1) + spec.action.minimum, expected)


def test_an_array_of_real_numbers_is_exported_as_the_environment_takes_it(tmp_path):
    action = ArraySpec((2, 1), "float64", (-1.0, 0.0), (3.0, 9.0))
    spec = EnvironmentSpec(VECTOR.observation, action)
    with tf.Graph().as_default():
        build_greedy = DDPGModel().build_greedy
        build_greedy(spec, tf.placeholder(tf.float32, [None, 4]))
        variables = tf.global_variables()
    rng = np.random.default_rng(0)
    named = {
        v.op.name: rng.normal(size=v.shape.as_list()).astype(np.float32)
        for v in variables
    }
    export_saved_model(DDPGModel(), spec, named, tmp_path / "export")
    policy = GreedyPolicy(DDPGModel(), spec, named)
    expected = policy.act(observations(VECTOR))
    policy.close()
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.load(session, ["serve"], str(tmp_path / "export"))
        signature = loaded.signature_def["serving_default"]
        outputs = {name: info.name for name, info in signature.outputs.items()}
        feeds = {signature.inputs["observation"].name: observations(VECTOR)}
        got = session.run(outputs, feeds)
    assert sorted(got) == ["action", "value"] and got["value"].shape == (100,)
    assert got["action"].dtype == expected.dtype == np.float64
    assert expected.shape == (100, 2, 1) and np.ptp(expected) > 1
    np.testing.assert_array_equal(got["action"], expected)


def test_inputs_are_named_after_the_leaves():
    leaf = ArraySpec((1,), "float32")
    assert input_names(leaf) == ["observation"]
    assert input_names(NEST.observation) == [
        "observation/body_joints",
        "observation/mode",
    ]
    assert input_names((leaf, leaf)) == ["observation/0", "observation/1"]
    assert len(set(input_names({"a_b": leaf, "a": {"b": leaf}}))) == 2


def test_what_the_export_says_of_itself(tmp_path):
    export_saved_model(DQNModel(), NEST, parameters(NEST), tmp_path / "export")
    text = json.loads((tmp_path / "export" / "distrl_export.json").read_text())
    assert list(text["inputs"]) == input_names(NEST.observation)
    assert text["outputs"] == ["action", "action_values"]


def test_an_own_export_is_replaced_whole(tmp_path):
    named = parameters(VECTOR)
    for _ in range(2):
        export_saved_model(DQNModel(), VECTOR, named, tmp_path / "export")
        (tmp_path / "export" / "stray").write_text("gone with the next export")
    export_saved_model(DQNModel(), VECTOR, named, tmp_path / "export")
    assert not (tmp_path / "export" / "stray").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["export"]


def test_an_empty_directory_is_used(tmp_path):
    export_saved_model(DQNModel(), VECTOR, parameters(VECTOR), tmp_path)
    assert (tmp_path / "saved_model.pb").exists()


@pytest.mark.parametrize(
    "content", ["notes.txt", "saved_model.pb", "distrl_export.json"]
)
def test_other_content_is_never_overwritten(tmp_path, content):
    (tmp_path / content).write_text("[1]")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        export_saved_model(DQNModel(), VECTOR, parameters(VECTOR), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [content]


def test_a_file_is_never_overwritten(tmp_path):
    (tmp_path / "export").write_text("mine")
    with pytest.raises(ConfigError, match="not a directory"):
        export_saved_model(DQNModel(), VECTOR, {}, tmp_path / "export")


def test_parameters_that_are_missing_are_named_and_nothing_is_written(tmp_path):
    named = parameters(VECTOR)
    del named["online/torso/hidden_1/bias"]
    with pytest.raises(ValueError, match="online/torso/hidden_1/bias"):
        export_saved_model(DQNModel(), VECTOR, named, tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_is_an_os_error_and_keeps_the_old_export(tmp_path):
    export_saved_model(DQNModel(), VECTOR, parameters(VECTOR), tmp_path / "export")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # TensorFlow writes by itself
    try:
        with pytest.raises(OSError, match="export"):
            export_saved_model(
                DQNModel(), VECTOR, parameters(VECTOR), tmp_path / "export"
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    assert (tmp_path / "export" / "saved_model.pb").exists()

"""Policies as SavedModels, for programs that do not have distrl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.checkpoints.directories import publish_directory
from distrl.checkpoints.policy import GreedyModel
from distrl.checkpoints.variables import (
    build_loading,
    parameter_specs,
    select_parameters,
)
from distrl.cluster.local_session import local_session
from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as
from distrl.core.specs import (
    ArraySpec,
    EnvironmentSpec,
    Nest,
    describe,
    leaf_names,
    leaves,
)
from distrl.networks.placeholders import placeholders

FORMAT = "distrl export 1"
MARKER = "distrl_export.json"


def export_saved_model(
    model: GreedyModel,
    spec: EnvironmentSpec,
    parameters: Mapping[str, np.ndarray],
    directory: str | Path,
) -> None:
    """Writes the greedy policy to `directory` as a SavedModel.

        policy = tf.saved_model.load(directory).signatures["serving_default"]
        action = policy(observation=batch)["action"]

    Inputs, `[N, ...]` with any N: "observation", or for a nest
    "observation/<path, / as _>" a leaf. Outputs: "action" (greedy, in the
    environment's numbering and dtype, `[N, ...]`; for a nest "action/<path>" a leaf)
    and what else the model's `build_greedy` names. A policy with a memory takes and
    gives "core_state/<path>" too: zeros where an episode begins, then what came out of
    the step before. `distrl_export.json` beside it lists inputs and outputs. An earlier
    export is replaced, whole.

    `parameters` may hold more than the policy needs. Raises ConfigError when the
    directory has other content or the model cannot choose such actions, ValueError for
    parameters that are missing or do not fit, OSError when the disk refuses it.
    """
    directory = Path(directory)
    _check_free(directory)
    with tf.Graph().as_default() as graph:
        observation_ph = placeholders(spec.observation, "observation")
        core_ph = placeholders(model.core_spec, "core_state")
        action, others = model.build_greedy(spec, observation_ph, core_ph)
        taken = _named("observation", spec.observation)
        taken |= _named("core_state", model.core_spec)
        given = [*leaves(observation_ph), *leaves(core_ph)]
        inputs = dict(zip(taken, given, strict=True))
        names = leaf_names("action", spec.action)
        actions = flatten_as(spec.action, action)
        outputs = dict(zip(names, actions, strict=True)) | others
        with local_session(graph) as session:
            _load(session, parameters)
            described = {
                "format": FORMAT,
                "inputs": {
                    name: describe(leaf)["array"] for name, leaf in taken.items()
                },
                "outputs": list(outputs),
                "action": describe(spec.action),
            }
            publish_directory(
                directory,
                lambda path: _write(session, path, inputs, outputs, described),
            )


def input_names(observation_spec: Nest) -> list[str]:
    """The signature's name of each leaf, in the order of the leaves; all different."""
    return leaf_names("observation", observation_spec)


def _named(name: str, spec: Nest) -> dict[str, ArraySpec]:
    return dict(zip(leaf_names(name, spec), leaves(spec), strict=True))


def _check_free(directory: Path) -> None:
    """Raises ConfigError if there is anything but an earlier export."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"export: {directory} is not a directory")
    try:
        ours = json.loads((directory / MARKER).read_text())["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours and any(directory.iterdir()):
        raise ConfigError(f"export: {directory} is not empty and not an export of ours")


def _load(session: tf.Session, parameters: Mapping[str, np.ndarray]) -> None:
    variables = tf.global_variables()
    arrays = select_parameters(parameter_specs(variables), parameters)
    values, load_op = build_loading(variables)
    session.run(load_op, dict(zip(values, arrays, strict=True)))


def _write(
    session: tf.Session,
    path: Path,
    inputs: dict[str, tf.Tensor],
    outputs: dict[str, tf.Tensor],
    described: Mapping[str, Any],
) -> None:
    signature = tf.saved_model.build_signature_def(
        _tensor_infos(inputs),
        _tensor_infos(outputs),
        tf.saved_model.signature_constants.PREDICT_METHOD_NAME,
    )
    # The builder insists on making the directory itself.
    path.rmdir()
    try:
        builder = tf.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.tag_constants.SERVING],
            {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
            clear_devices=True,
            strip_default_attrs=True,
        )
        builder.save()
    except tf.errors.OpError as error:  # TensorFlow has its own names for those
        raise OSError(f"{path}: {error.message}") from error
    (path / MARKER).write_text(json.dumps(described, indent=1))


def _tensor_infos(tensors: dict[str, tf.Tensor]) -> dict[str, Any]:
    return {k: tf.saved_model.build_tensor_info(t) for k, t in tensors.items()}

"""The policy of an export, without the model that it was made of."""

from __future__ import annotations

from pathlib import Path

import tensorflow.compat.v1 as tf

from distrl.checkpoints.export import MARKER
from distrl.cluster.local_session import local_callable, local_session
from distrl.core.errors import ConfigError
from distrl.core.nests import flatten_as, unflattener
from distrl.core.specs import EnvironmentSpec, Nest, leaf_names, leaves

_SIGNATURE = "serving_default"


class ExportedPolicy:
    """The greedy actions of a SavedModel that `export_saved_model` has written.

    The session runs in the calling thread and on the CPU; `close()` ends it.
    """

    def __init__(
        self, directory: str | Path, spec: EnvironmentSpec, core_spec: Nest = ()
    ):
        """`core_spec` is the state of one stream, () for a policy without a memory.

        Raises ConfigError for a directory that holds no export, and for an export with
        other inputs or outputs than these specs have.
        """
        if not (Path(directory) / MARKER).is_file():
            raise ConfigError(f"{directory} holds no export of distrl")
        self.core_spec = core_spec
        state = leaf_names("core_state", core_spec)
        inputs = [*leaf_names("observation", spec.observation), *state]
        outputs = [*leaf_names("action", spec.action), *state]
        graph = tf.Graph()
        self._session = session = local_session(graph)
        with graph.as_default():
            loaded = tf.saved_model.load(
                session, [tf.saved_model.SERVING], str(directory)
            )
        signature = loaded.signature_def[_SIGNATURE]
        _check(directory, "inputs", set(signature.inputs), set(inputs))
        _check(
            directory, "outputs", set(signature.outputs) & set(outputs), set(outputs)
        )
        self._run = local_callable(
            session,
            [
                graph.get_tensor_by_name(signature.outputs[name].name)
                for name in outputs
            ],
            [graph.get_tensor_by_name(signature.inputs[name].name) for name in inputs],
        )
        self._spec, self._num_actions = spec, len(leaves(spec.action))
        self._action, self._core_state = (
            unflattener(spec.action),
            unflattener(core_spec),
        )

    def step(self, observation: Nest, core_state: Nest = ()) -> tuple[Nest, Nest]:
        """Actions `[N, ...]` as the environment takes them, and states behind the step,
        of observations `[N, ...]` and the states before it (zeros where an episode
        begins). Raises ValueError for arrays that do not fit."""
        flat = flatten_as(self._spec.observation, observation)
        outputs = self._run(*flat, *flatten_as(self.core_spec, core_state))
        number = self._num_actions
        return self._action(outputs[:number]), self._core_state(outputs[number:])

    def close(self) -> None:
        """Ends the session; the policy cannot be used any more."""
        self._session.close()


def _check(
    directory: str | Path, what: str, found: set[str], expected: set[str]
) -> None:
    if found != expected:
        raise ConfigError(
            f"{directory}: expected the {what} {sorted(expected)}, the export has "
            f"{sorted(found)}"
        )

"""An actor's policy where the learner acts for it (SEED RL, Espeholt et al. 2019,
https://arxiv.org/abs/1910.06591)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distrl.agents.stream_policies import Decision
from distrl.checkpoints.policy_sampler import SampledActions
from distrl.cluster.messages import ChannelSpec, Message
from distrl.cluster.proxy_sender import SenderSettings
from distrl.core.errors import PeerUnreachable
from distrl.core.specs import ArraySpec, EnvironmentSpec, Nest, leaves
from distrl.core.threads import Deadline
from distrl.lifecycle.task import Task
from distrl.metrics.timers import WaitTimer
from distrl.models.policy_acting import PolicyModel

_LOOK_SECS = 0.2  # how often a wait for an answer looks at the run


class Streams(NamedTuple):
    """What a policy has to know of N streams."""

    observation: Nest  # [N, ...]
    core_state: Nest  # [N, ...], before the step


def observations_channel(model: PolicyModel, spec: EnvironmentSpec) -> ChannelSpec:
    """Actors → learner k, hosted by learner k."""
    record = Streams(spec.observation, model.core_spec)
    return ChannelSpec("observations", record, capacity=16)


def actions_channel(
    model: PolicyModel, spec: EnvironmentSpec, actor: int
) -> ChannelSpec:
    """Learner k → one actor, hosted by learner k: actors have no server.

    Messages carry the version acted by.
    """
    number = ArraySpec((), "float32")
    record = SampledActions(
        raw_action=model.distribution(spec.action).raw_spec,
        log_prob=number,
        value=number,
        behaviour=ArraySpec((model.behaviour_size(spec),), "float32"),
        core_state=model.core_spec,
    )
    return ChannelSpec("actions", record, capacity=4, lane=str(actor))


class RemotePolicy:
    """A StreamPolicy that asks learner 0, and waits. For one thread at a time."""

    def __init__(
        self,
        task: Task,
        model: PolicyModel,
        spec: EnvironmentSpec,
        timer: WaitTimer,
    ):
        """Opens its channels: call once the task has joined. `timer` measures "wait" in
        the thread that acts."""
        self._task, self._learner = task, task.address("learner", 0)
        self._timer = timer
        self.core_spec = model.core_spec
        self.to_environment = model.distribution(spec.action).to_environment
        channel = actions_channel(model, spec, task.index)
        self._answers = task.receiver(channel, capacity=1, at=self._learner)
        self._questions = task.sender(
            observations_channel(model, spec),
            self._learner,
            SenderSettings(capacity=1, max_message_bytes=0),
        )

    def act(self, observation: Nest, core_state: Nest) -> Decision:
        """Raises PeerUnreachable when the learner is gone, or does not answer within
        `shutdown_secs`."""
        rows = len(leaves(observation)[0])
        with self._timer.measure("wait"):
            answer = self._ask(Streams(observation, core_state), rows)
        version = np.full(rows, answer.header.version, np.int64)
        return Decision(answer.record, version)

    def _ask(self, question: Streams, rows: int) -> Message:
        limit = self._task.timeouts.shutdown_secs
        deadline = Deadline(limit)
        self._questions.put(question, rows, limit)  # there is room: one at a time
        while not deadline.passed and not self._task.peer_is_gone(self._learner):
            self._task.heartbeat.progress += 1
            answer = self._answers.get(_LOOK_SECS)
            if answer is not None:
                return answer
        raise PeerUnreachable(f"no actions from {self._learner} within {limit:.0f} s")

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Nothing: the learner acts by its own."""

    def close(self) -> None:
        """Nobody waits for what may still come. A learner that is lost ends nothing."""
        try:
            self._answers.stop()
        except PeerUnreachable:
            return

"""The learner's end of batched inference: it acts for all actors."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from distrl.agents.remote_policy import Streams, actions_channel, observations_channel
from distrl.agents.settings import Inference
from distrl.agents.stream_policies import (
    Decision,
    FlatSampler,
    LocalPolicy,
    SharedPolicy,
)
from distrl.cluster.messages import Message, Producer
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.core import seeds
from distrl.core.errors import ChannelClosed
from distrl.core.promises import Outcome
from distrl.core.specs import EnvironmentSpec
from distrl.core.threads import StoppableThread
from distrl.lifecycle.task import Task
from distrl.models.policy_acting import PolicyModel

_LOOK_SECS = 0.2  # how often an idle server looks whether it should stop


class InferenceServer:
    """Answers the observations of actors with actions; one forward pass for those that
    wait.

        server = InferenceServer(task, spec, model, inference)
        server.load(version, parameters)   # before the first actor acts; whenever newer
        server.check()                     # now and then
        server.finish()                    # when the run ends
        server.close()

    It keeps nothing of an actor between two questions: states of a recurrent core
    travel with them. A thread takes questions in, one acts.
    """

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: PolicyModel,
        inference: Inference,
    ):
        """Opens its channel: call once the task has joined."""
        self._task, self._spec, self._model = task, spec, model
        sequence = seeds.seed_sequence(task.run.seed, "learner", task.index)
        local = LocalPolicy(FlatSampler(model, spec), sequence)
        self._policy = SharedPolicy(local, inference, "inference")
        self._actors: dict[Producer, ProxySender] = {}
        self._error: Exception | None = None  # of the policy
        self._questions = task.receiver(observations_channel(model, spec), capacity=16)
        self._thread = StoppableThread("questions", self._take).start()

    def load(self, version: int, parameters: np.ndarray) -> None:
        """Acts under these from the next forward pass on, as they travel."""
        self._policy.load(version, parameters)

    def check(self) -> None:
        """Raises what has ended the server."""
        self._thread.check()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Answers until all actors have ended; the senders are the task's to end."""
        self._thread.stop()
        self._thread.join(self._task.timeouts.shutdown_secs)
        self._task.drain(self._questions, "actor", self._ask)
        self._report()

    def close(self) -> None:
        """Ends what acts."""
        self._policy.close()

    def _take(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                question = self._questions.get(_LOOK_SECS)
            except ChannelClosed:
                return
            if question is not None:
                self._ask(question)

    def _ask(self, question: Message) -> None:
        sender = self._sender(question.header.producer)
        streams: Streams = question.record
        self._policy.batcher.submit(tuple(streams), partial(self._answer, sender))

    def _answer(self, to: ProxySender, outcome: Outcome) -> None:
        """In the batcher's thread."""
        if outcome.error is not None:
            self._error = outcome.error
            return
        decision: Decision = outcome.value
        rows = len(decision.version)
        version = int(decision.version[0])
        # A question at a time: there is room, but for who does not read.
        if not to.put(decision.sampled, rows, 0.0, version):
            to.refuse(rows)

    def _sender(self, producer: Producer) -> ProxySender:
        """Towards one actor; restarted, it is another one."""
        if producer not in self._actors:
            task = self._task
            self._actors[producer] = task.sender(
                actions_channel(self._model, self._spec, producer.task),
                task.address(task.job, task.index),
                SenderSettings(capacity=4, max_message_bytes=0),
            )
        return self._actors[producer]

    def _report(self) -> None:
        self._task.gauges["inference_batch_size"] = round(
            self._policy.batcher.statistics.mean_batch_size, 1
        )

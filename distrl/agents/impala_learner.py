"""What the learner of IMPALA does: one step a batch, whoever acted it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distrl.agents.impala_memory import batches_channel
from distrl.agents.inference_server import InferenceServer
from distrl.agents.learner_loop import LearnerLoop, Publish
from distrl.agents.settings import Inference, Learning, UnrollBatches
from distrl.core.nests import map_nest
from distrl.core.specs import EnvironmentSpec
from distrl.core.trajectories import Trajectories
from distrl.learners.impala_session import ImpalaSession, ImpalaSettings
from distrl.lifecycle.task import Task
from distrl.models.impala import ImpalaModel


class ImpalaLearner(LearnerLoop):
    """The receiver's thread fetches the next message while this one is trained on."""

    def __init__(
        self,
        task: Task,
        spec: EnvironmentSpec,
        model: ImpalaModel,
        learning: Learning,
        settings: ImpalaSettings,
        batches: UnrollBatches,
        unroll_length: int,
        inference: Inference,
    ):
        self._training = session = ImpalaSession(
            model, spec, unroll_length, task.run.seed, settings, learning.num_threads
        )
        super().__init__(task, spec, model, session, learning)
        self._unrolls = model.trajectories_spec(spec, unroll_length)
        self._batch_size = batches.batch_size
        self._model, self._inference = model, inference
        self._server: InferenceServer | None = None

    @property
    def num_snapshots(self) -> int:
        return len(self.task.cluster.memory)

    def state(self) -> dict[str, np.ndarray]:
        """Also where the learning rate's schedule is."""
        steps = np.asarray(self._training.env_steps, np.int64)
        return super().state() | {"env_steps": steps}

    def restore(self, state: Mapping[str, np.ndarray], learner_steps: int) -> None:
        super().restore(state, learner_steps)
        self._training.env_steps = int(state["env_steps"])

    def open_channels(self) -> None:
        self._batches = self.task.receiver(batches_channel(self._unrolls), capacity=1)
        if self._inference.at == "learner":
            self._server = InferenceServer(
                self.task, self._spec, self._model, self._inference
            )

    def open_publication(self) -> Publish:
        """Where actors act here, each version is acted by before it is published."""
        publish, server = super().open_publication(), self._server
        if server is None:
            return publish
        self._closing.callback(server.close)

        def load_and_publish(version: int, parameters: np.ndarray) -> None:
            server.load(version, parameters)
            publish(version, parameters)

        return load_and_publish

    def step(self, timeout: float) -> None:
        if self._server is not None:
            self._server.check()
        with self.task.timer.measure("wait"):
            message = self._batches.get(timeout)
        if message is None:
            return
        for first in range(0, message.header.rows, self._batch_size):
            rows = slice(first, first + self._batch_size)
            if self.may_train:
                self._train(map_nest(lambda leaf, at=rows: leaf[at], message.record))
        self.now_and_then()

    def _train(self, batch: Trajectories) -> None:
        lag = self._version - batch.version
        metrics = self._training.train(self._training.load(batch))
        self.is_finite([metrics["loss"]], batch)
        self.task.counters.add("trained", len(batch.first_is_last))
        self.task.gauges.update(metrics)
        self.task.gauges["policy_lag"] = float(lag.mean())
        self.task.gauges["max_policy_lag"] = int(lag.max())
        self.after_step()

    def drain(self) -> None:
        self.task.drain(self._batches, "memory", lambda message: None)
        if self._server is not None:
            self._server.finish()

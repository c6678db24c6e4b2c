"""Trainers, sources and workers that a test holds in its hands."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from concurrent.futures import Future

import numpy as np

from distrl.learners.batch_assembly import rows_per_device
from distrl.learners.sample_workers import ThreadWorker

WAIT_SECS = 20.0  # how long a test waits for what must happen


class Boom(Exception):
    """What fakes raise."""


def wait_until(condition) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


def own_threads() -> list[str]:
    """Names of the threads that the machinery may have left."""
    marks = ("learner", "loader", "worker")
    return [t.name for t in threading.enumerate() if t.name.startswith(marks)]


def rows_of(*numbers: int) -> dict:
    return {"id": np.array(numbers)}


class CountingTrainer:
    """Adds 1 to two parameters an update, not at once; keeps the ids it trained on.

    Training waits for `gate`; update number `fails_at` raises Boom.
    """

    def __init__(self, fails_at: int | None = None, gated: bool = False):
        self.first, self.second = np.zeros(3), np.zeros(1000)
        self.trained: list[list[int]] = []
        self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)
        self._fails_at, self._gated = fails_at, gated

    def load(self, batch):
        return batch

    def train(self, loaded):
        self.entered.release()
        if self._gated:
            assert self.gate.acquire(timeout=WAIT_SECS)
        self.first += 1
        time.sleep(0)  # lets another thread look, if it may
        if len(self.trained) + 1 == self._fails_at:
            raise Boom("in an update")
        self.second += 1
        self.trained.append(loaded["id"].tolist())
        return {"mean_id": float(loaded["id"].mean())}

    def rows(self, loaded):
        return len(loaded["id"])

    def parameters(self):
        return [self.first, self.second]


class RegressionTrainer:
    """Least squares by gradient descent; `true` is what the sources draw from."""

    true = np.array([1.0, -2.0, 0.5])

    def __init__(self, learning_rate: float = 0.1, num_devices: int = 1):
        self.weights = np.zeros(3)
        self._rate, self._num_devices = learning_rate, num_devices

    def load(self, batch):
        rows = rows_per_device(len(batch["y"]), 1, self._num_devices)
        cuts = [slice(i * rows, (i + 1) * rows) for i in range(self._num_devices)]
        return [(batch["x"][cut], batch["y"][cut]) for cut in cuts]

    def train(self, loaded):
        gradients, losses = [], []
        for x, y in loaded:
            error = x @ self.weights - y
            gradients.append(x.T @ error / len(y))
            losses.append(0.5 * float(np.mean(error**2)))
        self.weights -= self._rate * np.mean(gradients, axis=0)
        return {"loss": float(np.mean(losses))}

    def rows(self, loaded):
        return sum(len(y) for _, y in loaded)

    def parameters(self):
        return [self.weights]


class RegressionSource:
    """`rows` examples a sample, with the version that it was told last."""

    def __init__(self, rows: int = 50, seed: int = 0):
        self._rows, self._random = rows, np.random.default_rng(seed)
        self._version = -1

    def sample(self):
        x = self._random.normal(size=(self._rows, 3))
        versions = np.full(self._rows, self._version)
        return {"x": x, "y": x @ RegressionTrainer.true, "version": versions}

    def set_parameters(self, version, parameters):
        assert parameters[0].shape == (3,) and not parameters[0].flags.writeable
        assert version > self._version
        self._version = version


class IdSource:
    """Fragments whose rows have ids that no other has; fails at its n-th sample."""

    def __init__(self, rows=3, first_id=0, fails_at=None):
        self._ids = itertools.count(first_id)
        self._rows, self._fails_at, self._samples = rows, fails_at, 0
        self.versions: list[int] = []
        self.closed = False

    def sample(self):
        self._samples += 1
        if self._samples == self._fails_at:
            raise Boom("in a sample")
        return rows_of(*itertools.islice(self._ids, self._rows))

    def set_parameters(self, version, parameters):
        self.versions.append(version)
        assert len({float(array.flat[0]) for array in parameters}) == 1, "torn"
        assert all((array == array.flat[0]).all() for array in parameters), "torn"

    def close(self):
        self.closed = True


class HandWorker:
    """A worker whose samples the test gives, and which ends when it says so."""

    ends = True

    def __init__(self, name="hand"):
        self.name = name
        self.asked: deque[Future] = deque()
        self.versions: list[int] = []
        self.started = self.stopped = self.joined = False
        self.successor: HandWorker | None = None

    def start(self):
        self.started = True

    def request_sample(self):
        self.asked.append(Future())
        return self.asked[-1]

    def set_parameters(self, parameters):
        self.versions.append(parameters.version)

    def answer(self, sample):
        self.asked.popleft().set_result(sample)

    def fail(self):
        self.asked.popleft().set_exception(Boom(self.name))

    def stop(self):
        self.stopped = True

    def join(self, timeout):
        assert self.stopped or not self.started
        if not self.ends:
            raise TimeoutError(f"{self.name} still runs")
        self.joined = True

    def renewed(self):
        self.successor = HandWorker(self.name)
        return self.successor


def regression(rows=50, number=1):
    """Workers that sample examples for a RegressionTrainer."""
    return [
        ThreadWorker(lambda seed=seed: RegressionSource(rows, seed), f"worker {seed}")
        for seed in range(number)
    ]


def run_until(optimizer, **bars) -> dict:
    """Steps until the counts are above the bars; the stats then."""
    deadline = time.monotonic() + 30.0
    while True:
        optimizer.step()
        stats = optimizer.stats()
        if all(stats[name] > bar for name, bar in bars.items()):
            return stats
        assert time.monotonic() < deadline, stats

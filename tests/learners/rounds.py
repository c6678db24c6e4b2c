"""Rounds of random rows in the NEXT_STEP layout, and a session that records."""

import numpy as np

from distrl.core.records import RolloutRows
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.losses.returns import step_mask

SPEC = EnvironmentSpec(ArraySpec((3,), "float32"), ArraySpec((), "int64", 0, 1))


def random_round(seed=0, num_steps=20, num_streams=4, end_rate=0.2, first=0):
    """Rows whose observation starts with a number of its own, t · N + n."""
    rng = np.random.default_rng(seed)
    shape = num_steps, num_streams
    observation = rng.normal(size=(num_steps + 1, num_streams, 3))
    observation[:, :, 0] = np.arange((num_steps + 1) * num_streams).reshape(
        -1, shape[1]
    )
    terminated, truncated = rng.random((2, *shape)) < end_rate / 2
    return RolloutRows(
        observation.astype(np.float32),
        rng.integers(0, 2, shape),
        behaviour_log_prob=(-0.7 + 0.1 * rng.normal(size=shape)).astype(np.float32),
        value=rng.normal(size=(num_steps + 1, num_streams)).astype(np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        core_state=(),
        first_is_last=rng.random(num_streams) < 0.5,
        stream=first + np.arange(num_streams),
    )


def mask_of(rows):
    return step_mask(rows.terminated, rows.truncated, rows.first_is_last)


class RecordingSession:
    """Takes the place of a PPOSession: keeps minibatches, says what KL it is told."""

    spec, raw_spec, core = SPEC, SPEC.action, None

    def __init__(self, kls=()):
        self.calls, self.observations, self._kls = [], [], list(kls)

    def train(self, batch, learning_rate, clip):
        if self.observations:
            raise RuntimeError("the statistics changed before the round's last update")
        self.calls.append((batch, learning_rate, clip))
        number = len(self.calls)
        kl = self._kls[number - 1] if number <= len(self._kls) else 0.0
        return {"approximate_kl": kl, "loss": float(number)}

    def update_normaliser(self, observation):
        self.observations.append(observation)

    def batches(self):
        return [batch for batch, _, _ in self.calls]

"""Environments with processes of their own, and a source: what children import."""

from __future__ import annotations

import atexit
import subprocess
from functools import partial

import gymnasium
import numpy as np

from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.serial_vector_environment import SerialVectorEnvironment


class Simulated(gymnasium.Env):
    """Its simulator is a process, which ends in `close` or by a hook, as it is told."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ends_by):
        self._process = subprocess.Popen(["sleep", "120"])
        self.simulator, self._ends_by = self._process.pid, ends_by
        if ends_by == "hook":
            atexit.register(self._end)

    def _end(self):
        self._process.terminate()
        self._process.wait()

    def close(self):
        if self._ends_by == "close":
            self._end()


class Plays:
    """Samples that say which simulators there are; fails at its n-th one."""

    def __init__(self, ends_by, fails_at=None):
        self._samples, self._fails_at = 0, fails_at
        seeds = EnvironmentSeeds(0, "actor", 0)
        factory = partial(Simulated, ends_by)
        self._environment = SerialVectorEnvironment(factory, 2, seeds)

    def sample(self):
        self._samples += 1
        if self._samples == self._fails_at:
            raise FloatingPointError("in a sample")
        return np.array(self._environment.get_attr("simulator"))

    def set_parameters(self, version, parameters):
        """It acts by none."""

    def close(self):
        self._environment.close()

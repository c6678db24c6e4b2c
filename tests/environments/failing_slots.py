"""Vector environments of which one slot fails, for the tests of faults and restarts."""

import functools

import gymnasium
import numpy as np
from gymnasium import spaces
from small_environments import FailingEnv

from distrl.core.seeds import EnvironmentSeeds
from distrl.environments.restarts import RestartPolicy
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.slot_records import SlotArrays, SlotSettings

SEEDS = EnvironmentSeeds(0, "actor", 0)
ONES = np.ones(3, np.int64)


def in_turn(*factories):
    """A factory that calls these, one after the other."""
    remaining = iter(factories)
    return lambda: next(remaining)()


def restarting(limit, window_secs=1e9):
    return SlotSettings(restart_on_error=RestartPolicy(limit, window_secs))


def failing_in_slot_1(at=3, limit=0, where="step", **kwargs):
    """Three environments of which the second fails every `at` steps of its life."""
    factory = functools.partial(FailingEnv, where, at, **kwargs)
    healthy = functools.partial(FailingEnv, where, None)
    environment = SerialVectorEnvironment(
        in_turn(healthy, factory, healthy, *[factory] * 10),
        3,
        SEEDS,
        restarting(limit),
    )
    return environment


def arrays_of(number):
    zeros = np.zeros(number, bool)
    return SlotArrays([np.zeros(number, np.int64)], np.zeros(number), zeros, zeros + 0)


def raising():
    raise OSError("no licence")


class Shows(gymnasium.Env):
    """Only its observation space matters, and whether it was closed."""

    action_space = spaces.Discrete(2)
    closed = False

    def __init__(self, space):
        self.observation_space = space

    def close(self):
        self.closed = True

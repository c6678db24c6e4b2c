"""Everything that a gin file may set, in one place.

Names in gin are the names of the classes and functions. `DEFAULTS` is read ahead of the
user's file, so a file only says what differs.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import gin
from gymnasium.wrappers import TimeLimit

from distrl.agents.actor_learner_agent import ActorLearnerAgent
from distrl.agents.apex_agent import ApexAgent
from distrl.agents.es_agent import ESAgent
from distrl.agents.impala_agent import ImpalaAgent
from distrl.agents.opponents import PolicyOpponents, RandomOpponents
from distrl.agents.ppo_agent import PPOAgent
from distrl.agents.settings import (
    Acting,
    Inference,
    Learning,
    Replay,
    Rounds,
    UnrollBatches,
    Unrolls,
)
from distrl.agents.world_environments import WorldEnvironments
from distrl.core.child_process import ChildLimits
from distrl.core.errors import ConfigError
from distrl.core.schedules import constant, linear
from distrl.environments.action_repeat import ActionRepeat
from distrl.environments.atari import atari_environment
from distrl.environments.envpool_vector_environment import EnvPoolVectorEnvironment
from distrl.environments.episode_log import EpisodeLog
from distrl.environments.frame_stack import FrameStack
from distrl.environments.gymnasium_environments import gymnasium_environment
from distrl.environments.memory_task import CueTask
from distrl.environments.native_vector_environment import NativeVectorEnvironment
from distrl.environments.observation_normaliser import ObservationNormaliser
from distrl.environments.restarts import RestartPolicy
from distrl.environments.reward_clip import RewardClip, RewardSign
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.environments.shared_memory_vector_environment import (
    SharedMemoryVectorEnvironment,
)
from distrl.environments.slot_records import SlotSettings
from distrl.environments.video_recorder import VideoRecorder
from distrl.environments.wrapped import wrapped
from distrl.learners.evolution_session import ESSettings
from distrl.learners.impala_session import ImpalaSettings
from distrl.learners.sync_samples import PPOSettings
from distrl.lifecycle.failure_policy import FailurePolicies
from distrl.lifecycle.settings import Run, StopConditions, Timeouts
from distrl.memories.prioritized import PrioritizedMemory
from distrl.memories.uniform import UniformMemory
from distrl.models.ddpg import DDPGModel
from distrl.models.dqn import DQNModel
from distrl.models.es import ESModel
from distrl.models.gradient_optimizers import adam, rmsprop
from distrl.models.impala import ImpalaModel
from distrl.models.popart import PopArt
from distrl.models.ppo import PPOModel
from distrl.models.recurrent_core import RecurrentCore
from distrl.networks.deterministic import critic_network, deterministic_policy_network
from distrl.networks.distributions import action_distribution
from distrl.networks.policy_value_network import (
    orthogonal_mlp,
    policy_value_network,
    recurrent_policy_value_network,
)
from distrl.networks.q_network import q_network
from distrl.networks.torsos import board_cnn, mlp, nature_cnn, shallow_cnn
from distrl.worlds.registry import create_task


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a gin file describes."""

    agent: ActorLearnerAgent
    run: Run


_configured_experiment = gin.external_configurable(Experiment)

for _part in (
    # agents and their settings
    *(ApexAgent, Acting, Replay, Learning),
    *(PPOAgent, Rounds, PPOSettings, PPOModel),
    *(policy_value_network, action_distribution, orthogonal_mlp),
    *(RecurrentCore, recurrent_policy_value_network),
    *(ESAgent, ESSettings, ESModel),
    *(ImpalaAgent, Unrolls, UnrollBatches, Inference, ImpalaSettings, ImpalaModel),
    *(rmsprop, adam, PopArt),
    # the run
    *(Run, StopConditions, Timeouts, FailurePolicies),
    # models and networks
    *(DQNModel, q_network, mlp, nature_cnn, shallow_cnn, board_cnn),
    *(DDPGModel, deterministic_policy_network, critic_network),
    # memories
    *(UniformMemory, PrioritizedMemory),
    # environments
    *(SerialVectorEnvironment, SharedMemoryVectorEnvironment),
    *(NativeVectorEnvironment, EnvPoolVectorEnvironment, WorldEnvironments, wrapped),
    *(SlotSettings, RestartPolicy, ChildLimits),
):
    gin.external_configurable(_part)


# gin has a `constant` of its own.
gin.external_configurable(constant, name="constant_schedule")
gin.external_configurable(linear, name="linear_schedule")


def _factory_maker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments in, a function that calls `function` with them and more out.

    What gin itself makes of a function could not be sent to another process, where
    nothing is configured.
    """

    @functools.wraps(function, updated=())
    def bound(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        return functools.partial(function, *args, **kwargs)

    bound.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return bound


for _function in (
    *(gymnasium_environment, atari_environment, CueTask),
    # wrappers of single environments, of vector environments, and their use
    *(ActionRepeat, TimeLimit),
    *(FrameStack, ObservationNormaliser, RewardClip, RewardSign),
    *(EpisodeLog, VideoRecorder),
    # games
    *(create_task, PolicyOpponents, RandomOpponents),
):
    gin.external_configurable(_factory_maker(_function))

_BAD_CONFIG = (
    *(ValueError, TypeError, SyntaxError, LookupError),
    *(ImportError, OSError),
)

DEFAULTS = """
Experiment.run = @Run()
Run.stop = @StopConditions()
Run.timeouts = @Timeouts()
Run.failures = @FailurePolicies()
ApexAgent.environment_factory = @SerialVectorEnvironment
ApexAgent.memory_factory = @PrioritizedMemory
ApexAgent.model = @DQNModel()
ApexAgent.acting = @Acting()
ApexAgent.replay = @Replay()
ApexAgent.learning = @Learning()
PPOAgent.environment_factory = @SerialVectorEnvironment
PPOAgent.model = @PPOModel()
PPOAgent.rounds = @Rounds()
PPOAgent.training = @PPOSettings()
PPOAgent.learning = @Learning()
ESAgent.environment_factory = @SerialVectorEnvironment
ESAgent.model = @ESModel()
ESAgent.rounds = @Rounds()
ESAgent.evolution = @ESSettings()
ESAgent.learning = @Learning()
ImpalaAgent.environment_factory = @SerialVectorEnvironment
ImpalaAgent.model = @ImpalaModel()
ImpalaAgent.unrolls = @Unrolls()
ImpalaAgent.inference = @Inference()
ImpalaAgent.batches = @UnrollBatches()
ImpalaAgent.training = @ImpalaSettings()
ImpalaAgent.learning = @Learning()
ImpalaModel.network = @policy_value_network
ImpalaModel.distribution = @action_distribution
ImpalaModel.gradient_optimizer = @rmsprop
PPOModel.network = @policy_value_network
PPOModel.distribution = @action_distribution
policy_value_network.torso = @orthogonal_mlp
RecurrentCore.network = @recurrent_policy_value_network
recurrent_policy_value_network.torso = @orthogonal_mlp
DQNModel.network = @q_network
q_network.torso = @mlp
DDPGModel.policy_network = @deterministic_policy_network
DDPGModel.critic_network = @critic_network
deterministic_policy_network.torso = @mlp
critic_network.torso = @critic/mlp
SerialVectorEnvironment.environment_factory = @gymnasium_environment()
SharedMemoryVectorEnvironment.environment_factory = @gymnasium_environment()
"""

#: Bindings under which environments live in the process that makes them: for one that
#: is a worker itself, among as many as there are cores.
WITHOUT_CHILDREN = ("SharedMemoryVectorEnvironment.start_method = 'inline'",)


def read_experiment(file: str, bindings: Sequence[str] = ()) -> Experiment:
    """The experiment of a gin file, under further bindings.

    Replaces what was read before. Raises ConfigError, naming the file and the key, for
    unknown keys, wrong syntax, and values that a part refuses.
    """
    if not pathlib.Path(file).is_file():
        raise ConfigError(f"--gin_file: there is no file {file!r}")
    gin.clear_config()
    try:
        gin.parse_config(DEFAULTS)
        gin.parse_config_files_and_bindings([file], list(bindings))
        return _configured_experiment()
    except _BAD_CONFIG as error:
        raise ConfigError(f"{file}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """What an error says, without the lines that gin adds about its callers."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def all_settings() -> dict[str, str]:
    """Every key that was set, with its value as gin writes it."""
    return _items(gin.config_str(max_line_length=100_000))


def operative_text() -> str:
    """The operative configuration as a gin file: what was set, and the defaults of all
    parts that this process has used."""
    used = _items(gin.operative_config_str(max_line_length=100_000))
    settings = all_settings() | used
    return "".join(f"{key} = {settings[key]}\n" for key in sorted(settings))


def _items(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if " = " in line)
    pairs = (line.split(" = ", 1) for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}

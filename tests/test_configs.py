"""Every file under configs/ is valid and can take a learner step."""

import pathlib

import numpy as np
import pytest

from distrl import configurables
from distrl.agents.apex_agent import ApexAgent
from distrl.agents.es_agent import ESAgent
from distrl.agents.impala_agent import ImpalaAgent
from distrl.agents.ppo_agent import PPOAgent
from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.records import ReplayBatch, Transition, replay_batch_spec
from distrl.core.returns_of_pairs import share_of_pairs
from distrl.core.running_moments import RunningMoments
from distrl.learners.evolution_session import EvolutionSession
from distrl.learners.impala_session import ImpalaSession
from distrl.learners.learning_session import LearningSession
from distrl.learners.policy_session import PPOSession

ROOT = pathlib.Path(__file__).resolve().parents[1] / "configs"
CONFIGS = sorted(ROOT.rglob("*.gin"))
ROWS = 4

pytestmark = pytest.mark.timeout(60)


def named(path):
    return str(path.relative_to(ROOT))


def test_there_are_configs():
    assert ROOT / "apex" / "cartpole.gin" in CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=named)
def test_it_parses_and_describes_a_run_that_ends(path):
    experiment = configurables.read_experiment(str(path))
    assert experiment.run.stop.goal
    settings = configurables.all_settings()
    for line in path.read_text().splitlines():
        key, equals, _ = line.partition(" = ")
        if equals and not line.startswith("#"):
            assert key.strip() in settings


@pytest.mark.parametrize("path", CONFIGS, ids=named)
def test_its_operative_text_describes_the_same_run(path, tmp_path):
    configurables.read_experiment(str(path))
    copy = tmp_path / "config.gin"
    copy.write_text(configurables.operative_text())
    settings = configurables.all_settings()
    configurables.read_experiment(str(copy))
    assert settings.items() <= configurables.all_settings().items()


def random_values(specs, rng):
    """ROWS of what these specs describe."""

    def values(leaf):
        shape = (ROWS, *leaf.shape)
        if leaf.dtype == "bool":
            return rng.random(shape) < 0.1
        if np.issubdtype(np.dtype(leaf.dtype), np.integer):
            low = 0 if leaf.minimum is None else leaf.minimum
            high = 2 if leaf.maximum is None else leaf.maximum
            return rng.integers(low, high, shape, leaf.dtype, endpoint=True)
        return rng.normal(size=shape).astype(leaf.dtype)

    return map_nest(values, specs)


def random_batch(spec, rng):
    """ROWS transitions that could come from a memory."""
    drawn = random_values(replay_batch_spec(spec), rng)
    discount = np.full(ROWS, 0.97, np.float32)
    transition = Transition(*drawn.transition)._replace(discount_t=discount)
    return ReplayBatch(transition, np.ones(ROWS, np.float32), np.arange(ROWS))


def train_on_transitions(agent, spec, rng):
    session = LearningSession(agent.model, spec, seed=0)
    before = session.parameters()
    priorities, metrics = session.train(random_batch(spec, rng), measure=True)
    after = session.parameters()
    session.close()
    assert priorities.shape == (ROWS,) and np.isfinite(priorities).all()
    return before, after, metrics


def train_on_rollouts(agent, spec, rng):
    session = PPOSession(agent.model, spec, seed=0)
    before = session.parameters()
    batch = random_values(agent.model.batch_spec(spec), rng)
    batch = batch._replace(mask=np.ones(ROWS, np.float32))
    metrics = session.train(batch, 0.001, 0.2)
    after = session.parameters()
    session.close()
    return before, after, metrics


def train_on_returns(agent, spec, rng):
    session = EvolutionSession(agent.model, spec, 0, agent.evolution)
    before = session.parameters()
    leaves = agent.model.normalised_leaves(spec)
    share = share_of_pairs(
        0,
        np.arange(ROWS),
        rng.normal(size=(ROWS, 2)),
        np.ones((ROWS, 2), np.int64),
        [RunningMoments(leaf.shape) for _, leaf in leaves],
        0.1,
    )
    metrics = session.train(share)
    return before, session.parameters(), metrics


def train_on_unrolls(agent, spec, rng):
    length, model = agent.unrolls.unroll_length, agent.model
    session = ImpalaSession(model, spec, length, 0, agent.training)
    before = session.parameters()
    batch = random_values(model.trajectories_spec(spec, length), rng)
    metrics = session.train(session.load(batch))
    after = session.parameters()
    session.close()
    return before, after, metrics


TRAINING = {
    ImpalaAgent: train_on_unrolls,
    ApexAgent: train_on_transitions,
    PPOAgent: train_on_rollouts,
    ESAgent: train_on_returns,
}


@pytest.mark.parametrize("path", CONFIGS, ids=named)
def test_it_takes_one_learner_step(path):
    agent = configurables.read_experiment(str(path)).agent
    spec, rng = agent.environment_spec(), np.random.default_rng(0)
    before, after, metrics = TRAINING[type(agent)](agent, spec, rng)
    assert np.isfinite(list(map(float, metrics.values()))).all()
    changed = [not np.array_equal(b, a) for b, a in zip(before, after, strict=True)]
    assert any(changed)


def bad(bindings):
    path = str(ROOT / "apex" / "cartpole.gin")
    return configurables.read_experiment(path, bindings)


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        ("Replay.no_such_key = 1", "no_such_key"),
        ("NoSuchThing.key = 1", "NoSuchThing"),
        ("Replay.batch_size = 0", "Replay.batch_size.*0"),
        ("Timeouts.heartbeat_secs = -1.0", "Timeouts.heartbeat_secs.*-1.0"),
        ("Run.seed = -1", "Run.seed.*-1"),
        ("StopConditions.max_env_steps = 0", "StopConditions.max_env_steps.*0"),
        ("ApexAgent.num_envs = 0", "num_envs.*0"),
        ("DQNModel.learning_rate = 0.0", "learning_rate.*0.0"),
        ("Replay.batch_size = ", "cartpole.gin|line"),
    ],
)
def test_a_bad_binding_is_a_config_error_by_name(binding, words):
    with pytest.raises(ConfigError, match=words):
        bad([binding])


@pytest.mark.parametrize(
    "name", ["CartPole-v99", "NoSuchEnvironment-v0", "no_such_module:Thing-v0"]
)
def test_an_unknown_environment_is_a_config_error_by_name(name):
    agent = bad([f'gymnasium_environment.id = "{name}"']).agent
    with pytest.raises(ConfigError, match=name):
        agent.environment_spec()


def test_a_missing_file_is_a_config_error_by_name():
    with pytest.raises(ConfigError, match="nowhere.gin"):
        configurables.read_experiment("nowhere.gin")


def test_one_reading_leaves_nothing_for_the_next():
    bad(["Replay.batch_size = 77", "mlp.hidden_sizes = (3,)"])
    agent = bad([]).agent
    assert agent.replay.batch_size == 256


def test_wrappers_in_gin_reach_the_environments_of_other_processes():
    """Frames are stacked here, actions repeated there."""
    bindings = [
        "ApexAgent.environment_factory = @vector/wrapped()",
        "vector/wrapped.factory = @SharedMemoryVectorEnvironment",
        "vector/wrapped.wrappers = (@FrameStack(), @RewardSign())",
        "FrameStack.num_stacked = 3",
        "SharedMemoryVectorEnvironment.environment_factory = @wrapped()",
        "wrapped.factory = @gymnasium_environment()",
        "wrapped.wrappers = (@ActionRepeat(), @TimeLimit())",
        "ActionRepeat.num_repeats = 4",
        "TimeLimit.max_episode_steps = 5",
    ]
    path = str(ROOT / "apex" / "cartpole.gin")
    agent = configurables.read_experiment(path, bindings).agent
    with agent.make_environment(0, "actor", 0, 2) as environment:
        assert environment.spec.observation.shape == (3, 4)
        environment.reset()
        steps = [environment.step(np.zeros(2, np.int64)) for _ in range(5)]
    lengths = [step.info["episode_length"][0] for step in steps if step.info]
    assert lengths and lengths[0] <= 5  # 20 pushes to one side are too many
    assert steps[0].reward.tolist() == [1.0, 1.0]
    assert max(step.info["episode_return"][0] for step in steps if step.info) > 5


def test_a_setting_that_a_wrapper_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="num_stacks"):
        path = str(ROOT / "apex" / "cartpole.gin")
        configurables.read_experiment(path, ["FrameStack.num_stacks = 3"])

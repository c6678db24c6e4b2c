"""An actor's share of a round: episodes of perturbed policies, exactly once."""

from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from distrl.agents.es_actor import ESActor, UnperturbedPolicy
from distrl.agents.es_agent import ESAgent
from distrl.agents.first_episodes import FirstEpisodes
from distrl.agents.settings import Rounds
from distrl.checkpoints.parameters import flatten_parameters
from distrl.core import seeds
from distrl.core.counters import Counters
from distrl.core.errors import ConfigError
from distrl.core.seeds import EnvironmentSeeds
from distrl.core.specs import leaves
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.evolution_session import ESSettings, EvolutionSession
from distrl.losses.evolution import noise_table
from distrl.models.es import ESModel

MODEL = ESModel((8,))
SETTINGS = ESSettings(pairs_per_round=4, noise_std=0.5, noise_table_size=1000)
SEED = 11
NUM_ENVS = 4  # so two batches

pytestmark = pytest.mark.timeout(60)


def cartpole():
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def pendulum():
    return gymnasium.make("Pendulum-v1", disable_env_checker=True)


class Recorded(SerialVectorEnvironment):
    """Keeps the seeds of its resets."""

    def _reset(self, seeds, options, timeout):
        self.seeds = [*getattr(self, "seeds", []), *(seeds or [])]
        return super()._reset(seeds, options, timeout)


def task(index=0):
    return SimpleNamespace(
        index=index,
        run=SimpleNamespace(seed=SEED),
        gauges={},
        counters=Counters(),
        heartbeat=SimpleNamespace(progress=0),
        signals=SimpleNamespace(received=None),
    )


@pytest.fixture
def make():
    """Calls of ESActor, with its environment and parameters."""
    made = []

    def actor(index=0, environment=cartpole, settings=SETTINGS, version=5):
        own_seeds = EnvironmentSeeds(SEED, "actor", index)
        vector = Recorded(environment, NUM_ENVS, own_seeds)
        own = ESActor(task(index), vector, None, MODEL, settings, Rounds())
        made.extend([own, vector])
        session = EvolutionSession(MODEL, vector.spec, SEED, settings)
        own.load(version, flatten_parameters(session.parameters()))
        return own, vector, session

    yield actor
    for one in made:
        one.close()


def serial_return(policy, environment, seed, limit=None):
    """Return, length and the observations that were acted on, of one episode."""
    observation, _ = environment.reset(seed=seed)
    total, over, seen = 0.0, False, []
    while not over:
        seen.append(observation)
        action = policy.greedy(observation[None])[0]
        observation, reward, terminated, truncated, _ = environment.step(action)
        total += float(reward)
        over = terminated or truncated or len(seen) == limit
    return total, len(seen), seen


@pytest.mark.parametrize(
    ("environment", "limit"), [(cartpole, None), (cartpole, 13), (pendulum, 20)]
)
def test_each_slot_returns_what_its_policy_does_alone(make, environment, limit):
    settings = ESSettings(4, 0.5, noise_table_size=1000, max_episode_steps=limit)
    actor, vector, session = make(environment=environment, settings=settings)
    share, rows = actor.collect()
    layout = session.layout
    statistics = session.parameters()[: layout.first]
    centre = layout.vector(session.parameters())
    policy, single = UnperturbedPolicy(MODEL, vector.spec), environment()
    seen = []
    for pair, name in enumerate(share.name):
        noise = session._perturbations.rows(np.array([name]))[0]
        for side, sign in enumerate((1, -1)):
            perturbed = layout.arrays(centre + sign * np.float32(0.5) * noise)
            policy.load([*statistics, *perturbed])
            seed = vector.seeds[2 * pair + side]
            total, length, own = serial_return(policy, single, seed, limit)
            assert share.returns[pair, side] == pytest.approx(total, rel=1e-3)
            assert share.length[pair, side] == length
            seen += own
    policy.close()
    assert rows == share.length.sum() == share.blocks[0, 2] == len(seen)
    assert len(set(share.length.ravel().tolist())) > 1 or limit
    np.testing.assert_allclose(share.mean[0][0], np.mean(seen, 0), atol=1e-3)
    np.testing.assert_allclose(share.variance[0][0], np.var(seen, 0), rtol=1e-2)
    assert share.num_seen[0].tolist() == [rows]


def test_the_noise_is_that_of_the_shared_table(make):
    actor, _, session = make()
    share, _ = actor.collect()

    own = seeds.integer_seed(seeds.seed_sequence(SEED, "learner", 0, restart=1))
    table, size = noise_table(own, 1000), session.layout.size
    expected = np.stack([table[n : n + size] for n in share.name])
    np.testing.assert_array_equal(session._perturbations.rows(share.name), expected)


def test_a_round_that_is_done_again_has_the_same_bytes(make):
    actor, *_ = make()
    twin, *_ = make()
    first, again, other = actor.collect()[0], actor.collect()[0], twin.collect()[0]
    for a, b, c in zip(leaves(first), leaves(again), leaves(other), strict=True):
        if a is not first.collect_secs:
            assert a.tobytes() == b.tobytes() == c.tobytes()


def test_a_run_repeats_to_the_bit(make):
    results = []
    for _ in range(2):
        actor, _, session = make(version=0)
        for version in range(1, 6):
            session.train(actor.collect()[0])
            actor.load(version, flatten_parameters(session.parameters()))
        results.append(flatten_parameters(session.parameters()).tobytes())
    assert results[0] == results[1]


def test_perturbations_differ_by_pair_actor_and_version(make):
    table = ESSettings(4, 0.5, noise_table_size=None)
    names = []
    for index, version in ((0, 5), (1, 5), (0, 6)):
        actor, vector, _ = make(index, settings=table, version=version)
        names += [*actor.collect()[0].name.tolist(), *set(vector.seeds)]
        assert vector.seeds[::2] == vector.seeds[1::2]  # those of a pair are equal
    assert len(set(names)) == len(names) == 3 * 8


def test_only_episodes_that_count_are_counted(make):
    actor, *_ = make()
    share, rows = actor.collect()
    counters, gauges = actor._task.counters, actor._task.gauges
    assert counters.get("episodes") == 8
    assert gauges["mean_return"] == pytest.approx(share.returns.mean())
    assert gauges["mean_length"] == pytest.approx(share.length.mean())


def test_a_signal_ends_it_without_a_share(make):
    actor, *_ = make()
    actor._task.signals.received = "SIGTERM"
    assert actor.collect() is None


def test_behind_its_end_a_slot_shows_nothing():
    with SerialVectorEnvironment(cartpole, 3) as environment:
        episodes = FirstEpisodes(environment, [1, 2, 3], None)
        told = 0
        actions = np.array([1, 1, 0])
        while episodes.running.any():
            before = episodes.running.copy()
            ended = episodes.step(actions).get("_episode_return", ~before & False)
            assert not (ended & ~before).any()
            told += ended.sum()
            actions = 1 - actions if episodes.lengths[0] % 2 else actions
        assert told == 3
        np.testing.assert_array_equal(episodes.returns, episodes.lengths)


@pytest.mark.parametrize(("num_envs", "pairs"), [(3, 3), (4, 3), (64, 16)])
def test_environments_that_do_not_fit_the_pairs_are_refused(num_envs, pairs):
    factory = partial(SerialVectorEnvironment, cartpole)
    settings = ESSettings(pairs_per_round=pairs)
    with pytest.raises(ConfigError, match=f"num_envs {num_envs}.*{2 * pairs} episodes"):
        ESAgent(factory, MODEL, num_envs, evolution=settings)

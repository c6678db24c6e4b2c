"""PPO in one process: what actors, memory and learner do, in a loop."""

import numpy as np

from distrl.core.core_states import CoreStates
from distrl.core.nests import map_nest
from distrl.core.records import RolloutRows


class Collector:
    """Rounds of T steps of a vector environment (NEXT_STEP), and episode returns."""

    def __init__(self, environment, sampler, seed=0, unroll_length=1):
        self._environment, self._sampler, self._seed = environment, sampler, seed
        self._observation, _ = environment.reset()
        self._last = np.zeros(environment.num_envs, bool)
        self._actor_steps = 0
        self._states = CoreStates(sampler.core_spec, environment.num_envs)
        self._unroll_length = unroll_length
        self.returns = []

    def round(self, num_steps):
        first_is_last, steps, states = self._last, [], []
        for step in range(num_steps):
            if step % self._unroll_length == 0:
                states.append(map_nest(np.copy, self._states.now))
            steps.append(self._step())
        observations, acted, results = zip(*steps, strict=True)
        value = self._sampler.value(self._observation, self._states.now)
        rows = self._rows(observations, acted, results, value, first_is_last)
        return rows._replace(core_state=stack(states))

    def _rows(self, observations, acted, results, value, first_is_last):
        return RolloutRows(
            observation=stack([*observations, self._observation]),
            raw_action=stack([each.raw_action for each in acted]),
            behaviour_log_prob=stack([each.log_prob for each in acted]),
            value=stack([*[each.value for each in acted], value]),
            reward=stack([step.reward for step in results]),
            terminated=stack([step.terminated for step in results]),
            truncated=stack([step.truncated for step in results]),
            core_state=(),
            first_is_last=first_is_last,
            stream=np.arange(len(first_is_last)),
        )

    def _step(self):
        observation = self._observation
        pair = self._seed, self._actor_steps
        acted = self._sampler.act(observation, pair, self._states.now)
        action = self._sampler.to_environment(acted.raw_action)
        step = self._environment.step(action)
        self._actor_steps += 1
        self._observation = step.observation
        # The row behind an end still belongs to its episode, the next one does not.
        self._states.keep(acted.core_state)
        self._states.clear(self._last)
        self._last = step.terminated | step.truncated
        if "episode_return" in step.info:
            ended = step.info["_episode_return"]
            self.returns += step.info["episode_return"][ended].tolist()
        return observation, acted, step


def stack(nests):
    return map_nest(lambda *leaves: np.stack(leaves), *nests)


def learn(collector, samples, session, sampler, num_steps, max_env_steps, enough):
    """Env steps until `enough(collector.returns)`, or all of them."""
    env_steps = 0
    while env_steps < max_env_steps and not enough(collector.returns):
        rows = collector.round(num_steps)
        env_steps += samples.train(rows, env_steps).num_rows
        sampler.load(session.parameters())
    return env_steps

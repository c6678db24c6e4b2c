"""A small ImpalaAgent that is watched, and what its ledger has to say."""

from functools import partial

from local_run import NUM_ENVS, cartpole

from distrl.agents.impala_agent import ImpalaAgent
from distrl.agents.settings import Inference, Learning, UnrollBatches, Unrolls
from distrl.core.schedules import constant
from distrl.environments.serial_vector_environment import SerialVectorEnvironment
from distrl.learners.impala_session import ImpalaSettings
from distrl.losses.returns import step_mask
from distrl.models.gradient_optimizers import adam
from distrl.models.impala import ImpalaModel
from distrl.networks.policy_value_network import orthogonal_mlp, policy_value_network

LENGTH, BATCH = 5, 6


class WatchedAgent(ImpalaAgent):
    """Keeps what its memories took in and what its learner trained on."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.stored, self.trained = [], []

    def make_memory(self, task, spec):
        memory = super().make_memory(task, spec)
        store = memory.store

        def kept(message):
            self.stored.append((message.header, message.record))
            store(message)

        memory.store = kept
        return memory

    def make_learner(self, task, spec):
        loop = super().make_learner(task, spec)
        train = loop._train

        def kept(batch):
            train(batch)
            self.trained.append((batch, dict(task.gauges)))

        loop._train = kept
        return loop


def make_agent(
    environment=cartpole,
    core=None,
    num_groups=1,
    rate=0.001,
    inference=None,
    **batches,
):
    """Everything small: unrolls of 5, batches of 6, and no evaluation."""
    torso = partial(orthogonal_mlp, hidden_sizes=(16,))
    model = ImpalaModel(
        partial(policy_value_network, torso=torso),
        core=core,
        loss_reduction="mean",
        gradient_optimizer=adam,
    )
    return WatchedAgent(
        partial(SerialVectorEnvironment, environment),
        model,
        NUM_ENVS,
        Unrolls(LENGTH, evaluation_period_secs=1e6),
        UnrollBatches(**({"batch_size": BATCH} | batches)),
        ImpalaSettings(constant(rate)),
        Learning(publish_period=1),
        num_groups,
        inference or Inference(),
    )


def env_steps_in(batch):
    ends = batch.terminated.T, batch.truncated.T
    return int(step_mask(*ends, batch.first_is_last).sum())


def check_ledger(summary, agent, replayed=0):
    """Unrolls are counted at both ends, env steps in them and in what was left."""
    for name, counts in summary["channels"].items():
        assert counts["lost"] == counts["duplicates"] == 0, (name, counts)
        assert counts["sent"] == counts["received"], (name, counts)
    rows, channels = summary["rows"], summary["channels"]
    unrolls = sum(header.rows for header, _ in agent.stored)
    assert rows["inserted"] == channels["experience"]["sent"] == unrolls
    assert rows["sampled"] == channels["batches"]["sent"] == unrolls + replayed
    shipped = sum(env_steps_in(record) for _, record in agent.stored)
    assert summary["env_steps"] == shipped + summary["unfinished_steps"]
    trained = sum(len(batch.first_is_last) for batch, _ in agent.trained)
    assert rows["trained"] == trained
    assert summary["learner_steps"] == len(agent.trained)

"""Exports act as the policies that they were made of, in worlds, too."""

import numpy as np
import pytest

from distrl.checkpoints.export import export_saved_model
from distrl.checkpoints.exported_policy import ExportedPolicy
from distrl.checkpoints.policy import GreedyPolicy
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, EnvironmentSpec
from distrl.models.impala import ImpalaModel
from distrl.models.recurrent_core import RecurrentCore
from distrl.worlds.policy_participant import PolicyParticipant

SPEC = EnvironmentSpec(
    {
        "action_mask": ArraySpec((4,), "int8", 0, 1),
        "observation": ArraySpec((3,), "float32"),
    },
    ArraySpec((), "int64", 0, 3),
)


def parameters(model):
    """Random ones by name."""
    random = np.random.default_rng(0)
    sampler = PolicySampler(model, SPEC)
    sampler.close()
    return {
        spec.name: random.normal(size=spec.shape).astype(spec.dtype)
        for spec in sampler.parameter_specs
    }


def observations(number, seed):
    random = np.random.default_rng(seed)
    mask = np.ones((number, 4), np.int8)
    mask[np.arange(number), random.integers(4, size=number)] = 0
    seen = random.normal(size=(number, 3)).astype(np.float32)
    return {"action_mask": mask, "observation": seen}


@pytest.fixture(params=[None, RecurrentCore(5)], ids=["feed-forward", "recurrent"])
def pair(request, tmp_path):
    """A greedy policy and its export."""
    model = ImpalaModel(core=request.param)
    arrays = parameters(model)
    export_saved_model(model, SPEC, arrays, tmp_path / "export")
    policies = (
        GreedyPolicy(model, SPEC, arrays),
        ExportedPolicy(tmp_path / "export", SPEC, model.core_spec),
    )
    yield policies
    for policy in policies:
        policy.close()


def test_an_export_acts_as_its_policy(pair):
    states = [
        map_nest(lambda leaf: leaf.zeros(20), policy.core_spec) for policy in pair
    ]
    for step in range(4):
        seen = observations(20, step)
        results = [
            policy.step(seen, state) for policy, state in zip(pair, states, strict=True)
        ]
        states = [state for _, state in results]
        np.testing.assert_array_equal(results[0][0], results[1][0])
        assert seen["action_mask"][np.arange(20), results[1][0]].all()
    map_nest(np.testing.assert_array_equal, *states)


def test_both_sit_in_worlds_and_remember_by_row(pair):
    """Rows that are asked at different times go on where they were."""
    seats = [PolicyParticipant(policy) for policy in pair]
    alone = {row: PolicyParticipant(pair[0]) for row in range(3)}
    for step in range(6):
        seen = observations(3, step)
        messages = [
            {"observation": map_nest(lambda leaf, n=row: leaf[n], seen)}
            for row in range(3)
        ]
        if step == 3:
            messages[1]["episode"] = 1  # another one begins
        asked = [row for row in range(3) if (step + row) % 3]
        shown = [message if n in asked else {} for n, message in enumerate(messages)]
        acts = [seat.batch_act(shown) for seat in seats]
        assert acts[0] == acts[1]
        for row in range(3):
            if row in asked:
                alone[row].observe(messages[row])
                assert alone[row].act() == acts[0][row]
            else:
                assert acts[0][row] == {}


def test_what_is_no_export_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no export"):
        ExportedPolicy(tmp_path, SPEC)


def test_an_export_of_other_specs_is_refused(tmp_path):
    model = ImpalaModel()
    export_saved_model(model, SPEC, parameters(model), tmp_path / "export")
    for spec in (
        SPEC._replace(observation=ArraySpec((3,), "float32")),
        SPEC._replace(action={"a": SPEC.action}),
    ):
        with pytest.raises(ConfigError, match="expected the (in|out)puts"):
            ExportedPolicy(tmp_path / "export", spec)

"""What unrolls look like."""

import numpy as np

from distrl.core.specs import ArraySpec, EnvironmentSpec, validate
from distrl.core.trajectories import Trajectories, trajectories_spec

SPEC = EnvironmentSpec(
    {"image": ArraySpec((2, 5), "uint8", 0, 9, num_stacked=2)},
    ArraySpec((2,), "float32", (0.0, -1.0), (2.0, 1.0)),
)


def test_shapes_and_bounds_behind_the_axis_of_unrolls():
    state = ArraySpec((3,), "float32")
    spec = trajectories_spec(SPEC, SPEC.action, 4, num_steps=3, core_state=(state,))
    assert spec.observation["image"] == ArraySpec((4, 2, 5), "uint8", 0, 9)
    low, high = (0.0, -1.0) * 3, (2.0, 1.0) * 3
    assert spec.raw_action == ArraySpec((3, 2), "float32", low, high)
    assert spec.behaviour == ArraySpec((3, 4), "float32")
    assert spec.core_state == (state,)
    zeros = Trajectories(
        observation={"image": np.zeros((7, 4, 2, 5), np.uint8)},
        raw_action=np.zeros((7, 3, 2), np.float32),
        behaviour=np.zeros((7, 3, 4), np.float32),
        reward=np.zeros((7, 3), np.float32),
        terminated=np.zeros((7, 3), bool),
        truncated=np.zeros((7, 3), bool),
        first_is_last=np.zeros(7, bool),
        core_state=(np.zeros((7, 3), np.float32),),
        version=np.zeros((7, 3), np.int64),
    )
    validate(spec, zeros, 1, "unrolls")

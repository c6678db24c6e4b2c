"""Rollouts come out of the channel as they went in, side by side."""

import numpy as np
import pytest

from distrl.core.nests import concatenate, map_nest
from distrl.core.records import RolloutRows, rollout_rows_spec
from distrl.core.rollouts import joined_rollouts, share_of, shares_spec
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves, validate

ACTION = {"jump": ArraySpec((), "int64"), "push": ArraySpec((2,), "float32")}
SPEC = EnvironmentSpec(
    observation={
        "image": ArraySpec((2, 3), "uint8"),
        "speed": ArraySpec((), "float64"),
    },
    action=ACTION,
)
CORE = {"c": ArraySpec((2,), "float32"), "h": ArraySpec((), "float32")}


def rollout(actor, steps, streams, core=CORE):
    """Random bytes in every leaf, of any dtype; two unrolls where that is possible."""
    random = np.random.default_rng(actor)

    def filled(leaf, *axes):
        shape = (*axes, *leaf.shape)
        if leaf.dtype == np.bool_:
            return random.random(shape) < 0.5
        return (200 * random.random(shape)).astype(leaf.dtype)

    spec = rollout_rows_spec(SPEC, ACTION, core)
    unrolls = 2 - steps % 2
    timed = map_nest(lambda leaf: filled(leaf, steps, streams), spec)
    longer = map_nest(lambda leaf: filled(leaf, steps + 1, streams), spec)
    return timed._replace(
        observation=longer.observation,
        value=longer.value,
        core_state=map_nest(lambda leaf: filled(leaf, unrolls, streams), core),
        first_is_last=filled(spec.first_is_last, streams),
        stream=filled(spec.stream, streams),
    )


def side_by_side(rollouts):
    """What `joined_rollouts` is to give, said leaf by leaf."""
    fields = {}
    for name in RolloutRows._fields:
        nests = [getattr(each, name) for each in rollouts]
        axis = 0 if name in ("first_is_last", "stream") else 1
        fields[name] = map_nest(
            lambda *parts, axis=axis: np.concatenate(parts, axis), *nests
        )
    return RolloutRows(**fields)


def check_equal(found, expected):
    assert found._fields == expected._fields
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def through_a_channel(shares):
    """As a memory joins them: leaf by leaf, along the first axis."""
    return concatenate([validated(share) for share in shares])


def validated(share, core=CORE):
    validate(shares_spec(SPEC, ACTION, core), share, 1, "share")
    return share


def test_one_share_comes_back_bit_for_bit():
    made = rollout(3, steps=5, streams=2)
    share = validated(share_of(3, made, rows=9, secs=0.25))
    assert share.blocks.tolist() == [[3, 5, 2, 1, 9]]
    assert share.collect_secs.tolist() == [0.25]
    check_equal(joined_rollouts([share]), made)


def test_without_a_core_there_are_no_states():
    made = rollout(3, steps=4, streams=2, core=())
    share = validated(share_of(3, made, rows=8, secs=0.25), core=())
    assert share.blocks.tolist() == [[3, 4, 2, 0, 8]]
    check_equal(joined_rollouts([share]), made)


@pytest.mark.parametrize("steps", [1, 4])
def test_shares_of_several_actors_lie_side_by_side(steps):
    made = [rollout(i, steps, streams) for i, streams in enumerate((3, 1, 2))]
    shares = [share_of(i, each, 7, 0.5 + i) for i, each in enumerate(made)]
    part = validated(through_a_channel(shares))
    assert part.blocks[:, 0].tolist() == [0, 1, 2]
    assert part.collect_secs.tolist() == [0.5, 1.5, 2.5]
    check_equal(joined_rollouts([part]), side_by_side(made))


def test_parts_of_several_memories_are_put_in_the_order_of_actors():
    made = [rollout(i, 4, streams) for i, streams in enumerate((3, 1, 2, 1))]
    shares = [share_of(i, each, 7, 0.5) for i, each in enumerate(made)]
    parts = [through_a_channel(shares[1::2]), through_a_channel(shares[0::2])]
    check_equal(joined_rollouts(parts), side_by_side(made))


def test_a_part_without_shares_adds_nothing():
    made = rollout(0, 4, 2)
    empty = map_nest(lambda leaf: leaf.zeros(0), shares_spec(SPEC, ACTION, CORE))
    check_equal(joined_rollouts([empty, share_of(0, made, 8, 0.0)]), made)


def test_different_lengths_are_refused_with_both():
    shares = [share_of(i, rollout(i, 4 + i, 2), 8, 0.0) for i in range(2)]
    with pytest.raises(ValueError, match=r"equally many steps, got \[4, 5\]"):
        joined_rollouts(shares)
    with pytest.raises(ValueError, match=r"equally many steps, got \[4, 5\]"):
        joined_rollouts([through_a_channel(shares)])

"""V-trace against values of the definition, and loops that look like it."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from distrl.cluster.local_session import local_session_config
from distrl.losses.returns import generalized_advantages, step_mask
from distrl.losses.vtrace import (
    log_probs_of_actions,
    vtrace_from_importance_weights,
    vtrace_from_log_probs,
    vtrace_from_logits,
)

T = 5
VALUES_OF_VT_2 = {
    1: {
        "vs": [0.200182, 2.709683, 8.513629, 11.932397, 7.33],
        "pg_advantages": [0.200182, 1.709683, 6.513629, 10.876616, 1.98],
    },
    5: {
        "vs": [
            [0.929816, 0.556437, 0.816895, 1.189767, 1.654995],
            [12.586081, 6.122605, 6.014773, 6.858315, 8.223335],
            [53.250235, 29.472212, 27.545144, 29.037191, 31.861154],
            [84.997055, 62.252525, 60.63228, 66.036559, 76.130179],
            [66.53, 69.69, 72.85, 76.01, 79.17],
        ],
        "pg_advantages": [
            [0.929816, 0.356437, 0.416894, 0.589767, 0.854995],
            [11.586081, 4.922605, 4.614773, 5.258315, 6.423335],
            [51.250235, 27.272212, 25.145144, 27.914654, 33.616118],
            [118.505153, 88.92832, 78.001, 69.30495, 64.79132],
            [37.18, 38.94, 40.7, 42.46, 44.22],
        ],
    },
}
ON_POLICY_OF_VT_3 = {
    1: {
        "vs": [[7.92189, 8.8021, 8.669, 7.41, 4.9]],
        "pg_advantages": [[7.92189, 7.8021, 6.669, 4.41, 0.9]],
    },
    2: {
        "vs": [
            [15.25329, 16.9481, 16.609, 14.01, 8.9],
            [4.406337, 7.569638, 10.15475, 11.455, 9.9],
        ],
        "pg_advantages": [
            [15.25329, 15.9481, 14.609, 11.01, 4.9],
            [3.906337, 6.069637, 7.65475, 7.955, 5.4],
        ],
    },
}


def counted(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def example(num_streams):
    """The inputs of VT-2 behind the importance weights."""
    return {
        "discounts": np.tile(0.9 / (np.arange(num_streams) + 1.0), (T, 1)),
        "rewards": counted(T, num_streams),
        "values": counted(T, num_streams) / num_streams,
        "bootstrap_value": np.arange(num_streams) + 1.0,
    }


def example_log_rhos(num_streams):
    return 5.0 * (counted(T, num_streams) / (T * num_streams) - 0.5)


def run(function, arrays, known=True, gradients=False, **options):
    """The results by name; sizes are unknown unless `known`, then only B is."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    arrays = {
        name: array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in arrays.items()
    }
    with tf.Graph().as_default() as graph:
        phs = {
            n: tf.placeholder(a.dtype, _shape(n, a, known)) for n, a in arrays.items()
        }
        built = function(**phs, **options)
        built = built._asdict() if hasattr(built, "_asdict") else {"result": built}
        fetches = dict(built)
        if gradients:
            total = tf.add_n([tf.reduce_sum(x) for x in built.values()])
            floats = [p for p in phs.values() if p.dtype.is_floating]
            fetches = [g for g in tf.gradients(total, floats) if g is not None]
        config = local_session_config() if known else None
        with tf.Session(graph=graph, config=config) as session:
            return session.run(fetches, {phs[n]: a for n, a in arrays.items()})


def _shape(name, array, known):
    if not known:
        return [None] * array.ndim
    free = 0 if name == "bootstrap_value" else 1
    return [None if axis == free else n for axis, n in enumerate(array.shape)]


def check(got, expected, atol=2e-6):
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, 2e-6, atol, err_msg=name)


@pytest.mark.parametrize("num_streams", [1, 2])
def test_vt_1_log_probs(num_streams):
    logits = np.arange(7 * num_streams * 3.0).reshape(7, num_streams, 3) + 10
    actions = np.random.default_rng(0).integers(0, 3, (7, num_streams))
    got = run(log_probs_of_actions, {"logits": logits, "actions": actions})["result"]
    expected = np.array([-2.407606, -1.407606, -0.407606])[actions]
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("num_streams", [1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_vt_2_importance_weights(num_streams, known):
    arrays = {"log_rhos": example_log_rhos(num_streams), **example(num_streams)}
    got = run(
        vtrace_from_importance_weights, arrays, known, rho_clip=3.7, pg_rho_clip=2.2
    )
    shape = T, num_streams
    expected = VALUES_OF_VT_2[num_streams]
    check(got, {n: np.reshape(x, shape) for n, x in expected.items()}, 1e-5)


def test_sr_1_log_probs_of_a_behaviour_of_zero():
    arrays = {
        "behaviour_log_probs": np.zeros((T, 5)),
        "target_log_probs": example_log_rhos(5),
        **example(5),
    }
    got = run(vtrace_from_log_probs, arrays, rho_clip=3.7, pg_rho_clip=2.2)
    check(got, VALUES_OF_VT_2[5], 1e-5)


@pytest.mark.parametrize("num_streams", [1, 2])
@pytest.mark.parametrize("known", [True, False])
def test_vt_3_logits_are_the_weights_derived_from_them(num_streams, known):
    rng = np.random.default_rng(1)
    arrays = {
        "behaviour_logits": rng.normal(size=(T, num_streams, 3)),
        "target_logits": rng.normal(size=(T, num_streams, 3)),
        "actions": rng.integers(0, 3, (T, num_streams)),
        **example(num_streams),
    }
    no_clips = {"rho_clip": None, "pg_rho_clip": None}
    got = run(vtrace_from_logits, arrays, known, **no_clips)
    for policy in ("behaviour", "target"):
        pair = {"logits": arrays[f"{policy}_logits"], "actions": arrays["actions"]}
        picked = run(log_probs_of_actions, pair)["result"]
        np.testing.assert_allclose(got[f"{policy}_log_probs"], picked, atol=1e-6)
    log_rhos = got["target_log_probs"] - got["behaviour_log_probs"]
    np.testing.assert_array_equal(got["log_rhos"], log_rhos)
    assert np.exp(log_rhos).max() > 1.5  # so that a clip would be seen
    weights = {"log_rhos": log_rhos, **example(num_streams)}
    expected = run(vtrace_from_importance_weights, weights, **no_clips)
    check(got, expected)


@pytest.mark.parametrize("num_streams", [1, 2])
def test_vt_3_equal_logits_are_on_policy(num_streams):
    logits = np.random.default_rng(2).normal(size=(T, num_streams, 3))
    arrays = {
        "behaviour_logits": logits,
        "target_logits": logits,
        "actions": np.ones((T, num_streams), np.int32),
        **example(num_streams),
    }
    got = run(vtrace_from_logits, arrays)
    expected = ON_POLICY_OF_VT_3[num_streams]
    check(got, {name: np.transpose(x) for name, x in expected.items()}, 1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_vt_4_trailing_axes(known):
    rng = np.random.default_rng(3)
    arrays = {
        "log_rhos": rng.normal(size=(T, 2, 1)),
        "discounts": rng.uniform(size=(T, 2, 1)),
        "rewards": rng.normal(size=(T, 2, 42)),
        "values": rng.normal(size=(T, 2, 42)),
        "bootstrap_value": rng.normal(size=(2, 42)),
    }
    got = run(vtrace_from_importance_weights, arrays, known)
    assert {array.shape for array in got.values()} == {(T, 2, 42)}
    one = {n: a[..., -1] for n, a in arrays.items()}
    check(
        {name: array[..., -1] for name, array in got.items()},
        run(vtrace_from_importance_weights, one),
    )


def test_vt_5_ranks_must_agree():
    arrays = {
        "log_rhos": np.zeros((T, 2, 1)),
        "discounts": np.zeros((T, 2, 1)),
        "rewards": np.zeros((T, 2, 42)),
        "values": np.zeros((T, 2, 42)),
        "bootstrap_value": np.zeros(2),
    }
    function = vtrace_from_importance_weights
    with pytest.raises(ValueError, match="bootstrap_value must have rank 2"):
        run(function, arrays)
    arrays["bootstrap_value"] = np.zeros((2, 42))
    for name in ("discounts", "rewards", "values"):
        with pytest.raises(ValueError, match=f"{name} must have rank 3"):
            run(function, {**arrays, name: np.zeros((T, 2))})
    with pytest.raises(ValueError, match="mask must have rank 3"):
        run(function, {**arrays, "mask": np.zeros((T, 2), bool)})
    with pytest.raises(ValueError, match="log_rhos must be"):
        run(function, {**arrays, "log_rhos": np.zeros(T)})


def test_log_probabilities_must_have_the_rank_of_the_rewards():
    arrays = {
        "behaviour_log_probs": np.zeros((T, 2)),
        "target_log_probs": np.zeros((T, 2, 1)),
        **example(2),
    }
    with pytest.raises(ValueError, match="target_log_probs must have rank 2"):
        run(vtrace_from_log_probs, arrays)
    with pytest.raises(ValueError, match="logits must have rank 3"):
        pair = {"logits": np.zeros((T, 3)), "actions": np.zeros((T, 1), np.int32)}
        run(log_probs_of_actions, pair)


def of_one_stream(**columns):
    last = columns.pop("bootstrap_value")
    arrays = {name: np.reshape(x, (-1, 1)) for name, x in columns.items()}
    return {**arrays, "bootstrap_value": np.array([last])}


@pytest.mark.parametrize(
    ("clip", "vs", "advantages"),
    [(1.0, [1.75, 1.5], [1.75, 1.5]), (None, [2.75, 1.5], [3.5, 1.5])],
)
def test_vt_6_by_hand(clip, vs, advantages):
    arrays = of_one_stream(
        log_rhos=np.log([2.0, 0.5]),
        discounts=[0.5, 0.5],
        rewards=[1.0, 1.0],
        values=[0.0, 0.0],
        bootstrap_value=4.0,
    )
    got = run(vtrace_from_importance_weights, arrays, rho_clip=clip, pg_rho_clip=clip)
    check(got, {"vs": np.c_[vs], "pg_advantages": np.c_[advantages]})


def test_vt_6_an_end_cuts_the_trace():
    arrays = of_one_stream(
        log_rhos=np.zeros(3),
        discounts=[0.9, 0.0, 0.9],
        rewards=[1.0, 2.0, 3.0],
        values=[0.5, 0.6, 0.7],
        bootstrap_value=10.0,
    )
    got = run(vtrace_from_importance_weights, arrays)
    check(got, {"vs": np.c_[[2.8, 2, 12]], "pg_advantages": np.c_[[2.3, 1.4, 11.3]]})


def test_vt_7_no_gradient_flows_through_the_results():
    arrays = {"log_rhos": example_log_rhos(2), **example(2)}
    assert run(vtrace_from_importance_weights, arrays, gradients=True) == []


def test_only_the_target_log_probabilities_have_a_gradient():
    arrays = {
        "target_log_probs": np.zeros((T, 2)),
        "behaviour_log_probs": np.zeros((T, 2)),
        **example(2),
    }

    def sum_of_all(**tensors):
        got = vtrace_from_log_probs(**tensors)
        return got._replace(behaviour_log_probs=tf.zeros([]))

    (gradient,) = run(sum_of_all, arrays, gradients=True)
    np.testing.assert_array_equal(gradient, np.ones((T, 2)))


@pytest.mark.parametrize("number", [0.0, -1.0, np.nan])
@pytest.mark.parametrize("name", ["rho_clip", "pg_rho_clip"])
def test_clips_must_be_above_0(name, number):
    arrays = {"log_rhos": example_log_rhos(1), **example(1)}
    with pytest.raises(ValueError, match=f"{name} must be above 0, got {number}"):
        run(vtrace_from_importance_weights, arrays, **{name: number})


@pytest.mark.parametrize("number", [-0.1, 1.1, np.nan])
def test_lambda_must_be_a_share(number):
    arrays = {"log_rhos": example_log_rhos(1), **example(1)}
    with pytest.raises(ValueError, match=f"lambda_ must be in .* got {number}"):
        run(vtrace_from_importance_weights, arrays, lambda_=number)


def oracle(steps, discount, rho_clip, pg_rho_clip, lambda_):
    """One stream in the NEXT_STEP layout, forwards from every row, as in the paper.

    vs_t is summed over the rest of the episode, without the recursion.
    """
    vs = np.array(steps["values"][:-1], np.float64)
    advantages = np.zeros(len(vs))
    rhos = np.exp(steps["log_rhos"])

    def clip(rho, limit):
        return rho if limit is None else min(rho, limit)

    def next_value(t, values):
        return 0.0 if steps["terminated"][t] else discount * values[t + 1]

    def is_end(t):
        return steps["terminated"][t] or steps["truncated"][t]

    for t in range(len(vs)):
        weight, s = 1.0, t
        while steps["mask"][t] and s < len(vs):
            delta = steps["rewards"][s] + next_value(s, steps["values"])
            delta -= steps["values"][s]
            vs[t] += weight * clip(rhos[s], rho_clip) * delta
            if is_end(s):
                break
            weight *= discount * lambda_ * min(1.0, rhos[s])
            s += 1
    for t in np.flatnonzero(steps["mask"]):
        # What is behind a truncation, or the unroll, is worth its value.
        worth = [*vs, steps["values"][-1]]
        if steps["truncated"][t]:
            worth[t + 1] = steps["values"][t + 1]
        target = steps["rewards"][t] + next_value(t, worth)
        advantages[t] = clip(rhos[t], pg_rho_clip) * (target - steps["values"][t])
    return vs, advantages


def streams_with_ends(num_steps):
    """Ends of both kinds in all places, one stream each; then of all kinds at random.

    Also what an environment returns of a row that is masked: anything.
    """
    rng = np.random.default_rng(7)
    quiet, no = np.zeros((num_steps, 2 * num_steps + 2), bool), np.zeros(1, bool)
    terminated, truncated = quiet.copy(), quiet.copy()
    first_is_last = np.zeros(quiet.shape[1], bool)
    terminated[range(num_steps), range(num_steps)] = True
    truncated[range(num_steps), range(num_steps, 2 * num_steps)] = True
    first_is_last[-1] = True
    several = 40
    terminated = np.c_[terminated, rng.random((num_steps, several)) < 0.2]
    truncated = np.c_[truncated, rng.random((num_steps, several)) < 0.2]
    first_is_last = np.r_[first_is_last, np.repeat(no, several)]
    first_is_last[-several // 2 :] = True
    return terminated, truncated, first_is_last


@pytest.mark.parametrize(
    "options",
    [
        {"rho_clip": 1.0, "pg_rho_clip": 1.0, "lambda_": 1.0},
        {"rho_clip": 1.5, "pg_rho_clip": None, "lambda_": 0.8},
        {"rho_clip": None, "pg_rho_clip": 0.7, "lambda_": 0.0},
    ],
)
def test_episodes_that_end_inside_an_unroll(options):
    rng, discount = np.random.default_rng(4), 0.9
    terminated, truncated, first_is_last = streams_with_ends(6)
    mask = step_mask(terminated, truncated, first_is_last)
    shape = mask.shape
    values = rng.normal(size=(shape[0] + 1, shape[1]))
    steps = {
        "log_rhos": rng.normal(size=shape),
        "rewards": rng.normal(size=shape),
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "mask": mask,
    }
    assert (truncated[-1] & mask[-1]).any() and (~mask[0]).any() and (~mask[-1]).any()
    got = run(
        vtrace_from_importance_weights,
        {
            "log_rhos": steps["log_rhos"],
            "discounts": discount * ~terminated,
            "rewards": steps["rewards"],
            "values": values[:-1],
            "bootstrap_value": values[-1],
            "mask": mask,
        },
        **options,
    )
    for stream in range(shape[1]):
        one = {name: array[:, stream] for name, array in steps.items()}
        vs, advantages = oracle(one, discount, **options)
        expected = {"vs": vs, "pg_advantages": advantages}
        check({n: x[:, stream] for n, x in got.items()}, expected, 1e-5)


def test_on_policy_it_is_generalised_advantage_estimation():
    rng = np.random.default_rng(5)
    terminated, truncated, first_is_last = streams_with_ends(6)
    mask = step_mask(terminated, truncated, first_is_last)
    values = rng.normal(size=(7, mask.shape[1]))
    rewards = rng.normal(size=mask.shape)
    arrays = {
        "log_rhos": np.zeros(mask.shape),
        "discounts": 0.9 * ~terminated,
        "rewards": rewards,
        "values": values[:-1],
        "bootstrap_value": values[-1],
        "mask": mask,
    }
    got = run(vtrace_from_importance_weights, arrays, lambda_=0.7)
    expected = generalized_advantages(
        rewards, values, terminated, truncated, mask, 0.9, 0.7
    )
    targets = np.where(mask, expected.value_targets, values[:-1])
    check(got, {"vs": targets}, 1e-5)


def test_masked_rows_may_hold_anything():
    rng = np.random.default_rng(6)
    mask = np.ones((T, 3), bool)
    mask[0, 0] = mask[2, 1] = mask[-1, 2] = False
    arrays = {"log_rhos": rng.normal(size=(T, 3)), **example(3), "mask": mask}
    got = run(vtrace_from_importance_weights, arrays)
    bad = {
        name: np.where(mask, arrays[name], number)
        for name, number in {
            "log_rhos": 1e4,
            "discounts": 7.0,
            "rewards": np.nan,
        }.items()
    }
    again = run(vtrace_from_importance_weights, {**arrays, **bad}, pg_rho_clip=None)
    np.testing.assert_array_equal(again["vs"], got["vs"])
    for name, expected in (("vs", arrays["values"]), ("pg_advantages", 0.0)):
        rows = np.broadcast_to(expected, mask.shape)[~mask]
        np.testing.assert_array_equal(again[name][~mask], rows.astype(np.float32))


def test_without_weights_beyond_bounds_it_is_finite():
    arrays = {"log_rhos": np.full((T, 2), 200.0), **example(2)}
    got = run(vtrace_from_importance_weights, arrays)
    assert all(np.isfinite(array).all() for array in got.values())

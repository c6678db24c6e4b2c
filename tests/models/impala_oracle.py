"""IMPALA's loss in NumPy, float64; data is batch-major, as Trajectories are."""

import numpy as np

from distrl.losses.returns import step_mask

OPTIONS = {
    "entropy_cost": 0.3,
    "baseline_cost": 0.7,
    "discount": 0.9,
    "lambda_": 0.8,
    "rho_clip": 1.2,
    "pg_rho_clip": 1.1,
    "reward_clipping": "abs_one",
}


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def oracle_targets(data, log_rho, value, mask, scale=1.0):
    """vs and advantages [U, T] by the recursion, of values [U, T + 1]."""
    rho, goes_on = np.exp(log_rho), 0.9 * ~data.terminated
    reward = np.clip(data.reward, -1, 1)
    vs, advantages = value.copy(), np.zeros_like(reward, np.float64)
    for u in range(len(reward)):
        for t in reversed(range(reward.shape[1])):
            if mask[u, t]:
                error = reward[u, t] + goes_on[u, t] * value[u, t + 1] - value[u, t]
                trace = goes_on[u, t] * 0.8 * min(1, rho[u, t])
                vs[u, t] += min(1.2, rho[u, t]) * error
                vs[u, t] += trace * (vs[u, t + 1] - value[u, t + 1])
                target = reward[u, t] + goes_on[u, t] * vs[u, t + 1]
                advantages[u, t] = min(1.1, rho[u, t]) * (target - value[u, t])
    return vs[:, :-1], advantages


def oracle(data, values, targets=None, reduction="sum"):
    """The metrics of the linear network, in float64; `targets` stay as they are."""
    observation = data.observation.astype(np.float64)
    mask = step_mask(data.terminated.T, data.truncated.T, data.first_is_last).T
    log_pi = log_softmax(observation @ values["w"])[:, :-1]
    behaviour = log_softmax(data.behaviour.astype(np.float64))
    at = (*np.indices(mask.shape), data.raw_action)
    value = (observation @ values["u"])[..., 0]
    log_rho = log_pi[at] - behaviour[at]
    vs, advantages = targets or oracle_targets(data, log_rho, value, mask)
    terms = {
        "policy_loss": -log_pi[at] * advantages,
        "baseline_loss": (vs - value[:, :-1]) ** 2 / 2,
        "entropy": -(np.exp(log_pi) * log_pi).sum(-1),
        "mean_rho": np.exp(log_rho),
        "clipped_share": np.exp(log_rho) > 1.2,
        "approximate_kl": np.exp(log_rho) - 1 - log_rho,
    }
    sums = {name: (x * mask).sum() for name, x in terms.items()}
    sums["loss"] = (
        sums["policy_loss"] + 0.7 * sums["baseline_loss"] - 0.3 * sums["entropy"]
    )
    whole = {"loss", "policy_loss", "baseline_loss"} if reduction == "sum" else set()
    metrics = {n: x if n in whole else x / mask.sum() for n, x in sums.items()}
    return metrics, (vs, advantages)

"""Gymnasium spaces as nests of ArraySpec, and how nests are taken apart by them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from distrl.core.errors import ConfigError
from distrl.core.nests import map_nest
from distrl.core.specs import ArraySpec, Bound, EnvironmentSpec, Nest, named_leaves

Getter = Callable[[Any], Any]


def environment_spec(environment: gymnasium.Env) -> EnvironmentSpec:
    """What one environment shows and takes, frame stacks included.

    Raises ConfigError, naming the space, for one that no nest of arrays can carry.
    """
    observation = space_spec(environment.observation_space)
    num_stacked = num_stacked_frames(environment)
    if num_stacked > 1:
        observation = map_nest(
            lambda leaf: dataclasses.replace(leaf, num_stacked=num_stacked), observation
        )
    return EnvironmentSpec(observation, space_spec(environment.action_space))


def space_spec(space: spaces.Space) -> Nest:
    """The nest of ArraySpec of a space; dicts in the order of their sorted keys."""
    if isinstance(space, spaces.Dict):
        return {key: space_spec(space[key]) for key in sorted(space.spaces)}
    if isinstance(space, spaces.Tuple):
        return tuple(space_spec(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        low, high = _bound(space.low), _bound(space.high)
        return ArraySpec(space.shape, space.dtype.name, low, high)
    if isinstance(space, spaces.Discrete):
        start, end = int(space.start), int(space.start + space.n - 1)
        return ArraySpec((), space.dtype.name, start, end)
    if isinstance(space, spaces.MultiDiscrete):
        low, high = _bound(space.start), _bound(space.start + space.nvec - 1)
        return ArraySpec(space.shape, space.dtype.name, low, high)
    if isinstance(space, spaces.MultiBinary):
        return ArraySpec(space.shape, space.dtype.name, 0, 1)
    raise ConfigError(f"space without a fixed shape and dtype: {space!r}")


def _bound(values: np.ndarray) -> Bound:
    """One number where all are equal, None where all are infinite."""
    flat = values.ravel()
    if np.isinf(flat).all():
        return None
    if (flat == flat[0]).all():
        return flat[0].item()
    return tuple(flat.tolist())


def num_stacked_frames(environment: gymnasium.Env) -> int:
    """How many consecutive frames an observation stacks on its first axis; 1 for none.

    Told by an attribute `num_stacked` of the environment or of a wrapper, or by a
    FrameStackObservation that repeats the first frame, below wrappers that leave the
    observation alone.
    """
    for layer in _layers(environment):
        if hasattr(layer, "num_stacked"):
            return layer.num_stacked
        if isinstance(layer, FrameStackObservation):
            return layer.stack_size if layer.padding_type == "reset" else 1
        if isinstance(layer, gymnasium.ObservationWrapper) or (
            layer.observation_space is not environment.observation_space
        ):
            return 1
    return 1


def reports_episodes(environment: gymnasium.Env) -> bool:
    """Whether some layer says (`reports_episodes = True`) that each real end of an
    episode comes with `info["episode"]`, and an end without it is not one."""
    return any(
        getattr(layer, "reports_episodes", False) for layer in _layers(environment)
    )


def _layers(environment: gymnasium.Env) -> list[gymnasium.Env]:
    """The environment and what it wraps, outermost first."""
    layers = [environment]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def leaf_getters(spec: Nest) -> list[Getter]:
    """For each leaf of `spec`, the function that finds it in a value.

    The structure is the spec's: the order of a dict's keys, and its class, do not
    matter. A getter raises LookupError or TypeError when its leaf is not there.
    """
    if isinstance(spec, dict):
        parts: list[tuple[Any, Nest]] = [(key, spec[key]) for key in sorted(spec)]
    elif isinstance(spec, tuple):
        parts = list(enumerate(spec))
    else:
        return [lambda value: value]
    return [_within(key, inner) for key, part in parts for inner in leaf_getters(part)]


def _within(key: Any, inner: Getter) -> Getter:
    return lambda value: inner(value[key])


class WrongObservation(ValueError):
    """An environment broke its own observation space."""


def observation_check(spec: Nest) -> Callable[[Any], None]:
    """A function that raises WrongObservation, naming the leaf, unless it is given an
    observation of `spec`.

    A dtype fits when the spec's holds each of its values.
    """
    parts = list(zip(named_leaves(spec), leaf_getters(spec), strict=True))

    def check(value: Any) -> None:
        for (name, leaf), get in parts:
            try:
                array = np.asarray(get(value))
            except (LookupError, TypeError, ValueError) as error:
                raise _wrong(name, leaf, _outline(value)) from error
            fits = np.can_cast(array.dtype, leaf.dtype, "safe")
            if not fits or array.shape != leaf.shape:
                raise _wrong(name, leaf, f"{array.dtype}{list(array.shape)}")

    return check


def _wrong(name: str, leaf: ArraySpec, got: str) -> WrongObservation:
    expected = f"{leaf.dtype}{list(leaf.shape)}"
    return WrongObservation(
        f"observation, leaf {name!r}: expected {expected}, got {got}"
    )


def _outline(value: Any) -> str:
    """The kind of a nest, with its keys or its length."""
    if hasattr(value, "keys"):
        return f"a {type(value).__name__} with keys {list(value.keys())}"
    size = f" of length {len(value)}" if hasattr(value, "__len__") else ""
    return f"a {type(value).__name__}{size}"


def split_actions(space: spaces.Space, actions: Nest) -> Sequence[Any]:
    """One action an environment from a nest of `[N, ...]` arrays.

    Discrete actions become Python integers. The others are copies, so that an
    environment that changes its action changes nobody else's.
    """
    if isinstance(space, spaces.Dict):
        keys = list(space.spaces)
        if set(actions) != set(keys):
            raise ValueError(f"expected actions for {keys}, got {list(actions)}")
        parts = [split_actions(part, actions[key]) for key, part in space.items()]
        return [dict(zip(keys, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(space, spaces.Tuple):
        if len(actions) != len(space.spaces):
            raise ValueError(f"expected {len(space.spaces)} parts, got {len(actions)}")
        parts = [split_actions(*pair) for pair in zip(space.spaces, actions)]  # noqa: B905
        return list(zip(*parts, strict=True))
    if isinstance(space, spaces.Discrete):
        array = np.asarray(actions)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"expected integer actions [N], got {array.dtype}{list(array.shape)}"
            )
        return array.tolist()
    array = np.array(actions, space.dtype)
    if array.shape[1:] != space.shape:
        raise ValueError(f"expected actions [N, *{space.shape}], got {array.shape}")
    return list(array) if array.ndim > 1 else [array[i, ...] for i in range(len(array))]

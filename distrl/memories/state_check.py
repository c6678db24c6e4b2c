"""What a saved state holds, checked before anything of a memory changes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

State = Mapping[str, np.ndarray]


def saved_array(
    state: State, name: str, dtype: DTypeLike, shape: tuple[int | None, ...]
) -> np.ndarray:
    """`state[name]`, of this dtype and shape, where None is any length.

    Raises ValueError, naming the entry, when it is missing or differs.
    """
    array = _entry(state, name)
    fits = array.ndim == len(shape) and all(
        want in (None, got) for want, got in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.dtype(dtype) or not fits:
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(
            f"{name!r} of the state: expected {np.dtype(dtype)}[{expected}], "
            f"got {array.dtype}{list(array.shape)}"
        )
    return array


def saved_counts(state: State, name: str, number: int) -> list[int]:
    """`number` integers >= 0. Raises ValueError, naming the entry."""
    counts: list[int] = saved_array(state, name, np.int64, (number,)).tolist()
    if min(counts) < 0:
        raise ValueError(f"{name!r} of the state: counts are >= 0, got {counts}")
    return counts


def saved_count(state: State, name: str) -> int:
    """One integer >= 0. Raises ValueError, naming the entry."""
    count = int(saved_array(state, name, np.int64, ()))
    if count < 0:
        raise ValueError(f"{name!r} of the state: a count is >= 0, got {count}")
    return count


def saved_text(state: State, name: str) -> str:
    """One text. Raises ValueError, naming the entry."""
    return str(_texts(state, name, 0))


def saved_texts(state: State, name: str) -> list[str]:
    """Texts, 1-D. Raises ValueError, naming the entry."""
    texts: list[str] = _texts(state, name, 1).tolist()
    return texts


def _texts(state: State, name: str, rank: int) -> np.ndarray:
    array = _entry(state, name)
    if array.dtype.kind != "U" or array.ndim != rank:
        raise ValueError(
            f"{name!r} of the state: expected text of rank {rank}, got "
            f"{array.dtype}{list(array.shape)}"
        )
    return array


def _entry(state: State, name: str) -> np.ndarray:
    if name not in state:
        raise ValueError(f"the state has no {name!r}, only {sorted(state)}")
    return np.asarray(state[name])


def saved_generator(state: State, name: str) -> np.random.Generator:
    """A generator that goes on from `generator_text`. Raises ValueError."""
    generator, text = np.random.default_rng(0), saved_text(state, name)
    try:
        generator.bit_generator.state = json.loads(text)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(
            f"{name!r} of the state is no state of a generator: {error!r}"
        ) from error
    return generator


def generator_text(generator: np.random.Generator) -> np.ndarray:
    """Where a generator stands, as an array without Python objects."""
    return np.array(json.dumps(generator.bit_generator.state))

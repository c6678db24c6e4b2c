"""Factories with wrappers around what they make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any


def wrapped(
    factory: Callable[..., Any], wrappers: Sequence[Callable[[Any], Any]]
) -> Callable[..., Any]:
    """A factory of what `factory` makes inside `wrappers`, the first one innermost.

    It goes to other processes as well as its parts do, and takes the arguments that
    `factory` takes. For single environments and for vector environments:

        wrapped(gymnasium_environment, [partial(ActionRepeat, num_repeats=4)])
        wrapped(SerialVectorEnvironment, [partial(FrameStack, num_stacked=4)])

    What was made is closed if a wrapper raises. Raises TypeError for what cannot be
    called.
    """
    for part in (factory, *wrappers):
        if not callable(part):
            raise TypeError(f"expected a factory or wrapper, got {part!r}")
    return functools.partial(_make, factory, tuple(wrappers))


def _make(
    factory: Callable[..., Any],
    wrappers: Sequence[Callable[[Any], Any]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    environment = factory(*args, **kwargs)
    try:
        for wrapper in wrappers:
            environment = wrapper(environment)
    except BaseException:
        environment.close()
        raise
    return environment

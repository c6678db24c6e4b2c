"""Memory that was freed, and that the C library keeps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _find_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim  # of glibc
    except (AttributeError, OSError):
        return None


_trim = _find_trim()


def give_back() -> bool:
    """Gives free pages of the heap back to the system; whether there were any.

    Measured on tasks of a run, which free as much as they allocate: without it their
    resident memory creeps up by some 3 MB a minute, to fall by 30 MB now and then.
    Other threads go on meanwhile. Does nothing without glibc.
    """
    return bool(_trim(0)) if _trim is not None else False

"""What the machine has."""

from __future__ import annotations

import psutil


def memory_bytes() -> int:
    """Bytes of main memory."""
    return psutil.virtual_memory().total


def available_bytes() -> int:
    """Bytes of main memory that nobody uses."""
    return psutil.virtual_memory().available

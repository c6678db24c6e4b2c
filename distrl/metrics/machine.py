"""What the machine has."""

from __future__ import annotations

import psutil


def memory_bytes() -> int:
    """Bytes of main memory."""
    return psutil.virtual_memory().total

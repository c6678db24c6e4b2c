"""Freed memory goes back to the system."""

import psutil

from distrl.core import heap


def test_freed_memory_is_given_back():
    blocks = [bytes(100_000) for _ in range(1000)]  # below the threshold of mmap
    kept = blocks[::50]  # so that the heap does not end with free pages
    full = psutil.Process().memory_info().rss
    blocks.clear()
    assert heap.give_back()
    assert psutil.Process().memory_info().rss < full - 50e6
    assert len(kept) == 20


def test_another_c_library_is_no_trouble(monkeypatch):
    monkeypatch.setattr(heap, "_trim", None)
    assert heap.give_back() is False

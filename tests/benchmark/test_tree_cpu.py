"""CPU time of trees of real processes."""

import subprocess
import sys
import time

import psutil
import pytest

from distrl.benchmark.tree_cpu import TreeCpu

BURN_SECS = 0.15
START_SECS = 0.1  # of the tree, before anybody looks
# Burns CPU itself, in a child that has ended, and in one that goes on until it is told.
TREE = f"""
import subprocess, sys, time
BURN = "import time\\nwhile time.process_time() < {BURN_SECS}: pass\\n"
subprocess.run([sys.executable, "-S", "-c", BURN])
lasting = subprocess.Popen(
    [sys.executable, "-S", "-c", BURN + "print('burnt', flush=True); input()"],
    stdin=subprocess.PIPE,
)
exec(BURN)
print("burnt", flush=True)
input()
lasting.communicate(b"\\n")
"""


@pytest.fixture
def tree():
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", TREE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        yield process
        if process.poll() is None:
            process.kill()


@pytest.mark.timeout(60)
def test_all_of_the_tree_counts(tree):
    with TreeCpu(tree.pid, period_secs=0.1) as cpu:
        begin = time.time()
        assert [tree.stdout.readline() for _ in range(2)] == 2 * [b"burnt\n"]
        end = time.time()
    used = cpu.between(begin, end)
    assert 3 * BURN_SECS - START_SECS < used < 3 * BURN_SECS + 1
    assert cpu.between(end, end) == 0.0
    middle = (begin + end) / 2
    parts = cpu.between(begin, middle) + cpu.between(middle, end)
    assert parts == pytest.approx(used)
    with pytest.raises(ValueError, match=f"not {begin - 9} to"):
        cpu.between(begin - 9, end)
    with pytest.raises(ValueError, match="sampled from"):
        cpu.between(begin, end + 9)


@pytest.mark.timeout(60)
def test_what_has_been_used_stays_used(tree):
    with TreeCpu(tree.pid, period_secs=0.01) as cpu:
        begin = time.time()
        assert [tree.stdout.readline() for _ in range(2)] == 2 * [b"burnt\n"]
        middle = time.time()
        cpu.kill()
        end = time.time()
    assert 0 < cpu.between(begin, middle) <= cpu.between(begin, end)


@pytest.mark.timeout(60)
def test_kill_ends_the_tree(tree):
    with TreeCpu(tree.pid, period_secs=0.1) as cpu:
        assert tree.stdout.readline() == b"burnt\n"
        children = psutil.Process(tree.pid).children(recursive=True)
        assert children
        cpu.kill()
    tree.wait()
    assert not [p for p in children if alive(p)]


def alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # of a parent that never waits
    except psutil.NoSuchProcess:
        return False

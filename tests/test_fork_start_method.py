"""The tests that fork, in a process that has not loaded TensorFlow."""

import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parent


@pytest.mark.timeout(120)
@pytest.mark.parametrize("package", ["core", "environments", "worlds"])
def test_what_forks(package):
    command = [sys.executable, "-m", "pytest", "-q", "-k", "fork and not forkserver"]
    command += ["-p", "no:cacheprovider", str(TESTS / package)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=TESTS.parent
    )
    assert done.returncode == 0, done.stdout

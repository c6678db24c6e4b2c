"""Format, lint and types of the whole repository."""

from __future__ import annotations

import subprocess
import sys

import pytest

from launch.bootstrap import ROOT, STYLE_COMMANDS


@pytest.mark.parametrize("command", STYLE_COMMANDS, ids=" ".join)
@pytest.mark.timeout(600)
def test_style(command):
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr

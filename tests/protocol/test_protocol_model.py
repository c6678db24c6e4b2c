"""The protocol's models hold at small sizes, and the checker sees planted faults."""

import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol"

pytestmark = [
    pytest.mark.skipif(
        shutil.which("spin") is None or shutil.which("gcc") is None,
        reason="needs spin and gcc (apt-get install spin gcc)",
    ),
    pytest.mark.timeout(300),
]


def load_check() -> ModuleType:
    """docs/protocol/check, which has no .py, as a module."""
    loader = importlib.machinery.SourceFileLoader(
        "protocol_check", str(_PROTOCOL / "check")
    )
    spec = importlib.util.spec_from_loader("protocol_check", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    path = list(sys.path)
    try:
        sys.modules["protocol_check"] = module  # NamedTuple looks its module up
        loader.exec_module(module)
    finally:
        sys.modules.pop("protocol_check")
        sys.dont_write_bytecode = written
        sys.path[:] = path
    return module


def run_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(_PROTOCOL / "check"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_every_model_is_proven_at_small_sizes() -> None:
    ended = run_check("--fast", "--no-faults")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [row.split() for row in ended.stdout.splitlines()[1:]]
    models = {path.stem for path in _PROTOCOL.glob("*.pml")}
    assert {(row[0], row[1]) for row in rows} == {
        (model, what) for model in models for what in ("safety", "ends")
    }
    assert all(row[-1] == "proven" for row in rows)


def missed(cases: list[Any]) -> list[Any]:
    """Those whose planted fault is not found."""
    check = load_check()
    results = [(case, check.verify(case, case.finds, 200.0, 1000)) for case in cases]
    return [case for case, result in results if check.judge(case, result) != "found"]


def test_planted_faults_are_found() -> None:
    faults = [case for case in load_check().FAULTS if case.fast]
    assert {case.model for case in faults} >= {"delivery", "farewell", "rounds"}
    assert not missed(faults)


@pytest.mark.slow
def test_the_other_planted_faults_are_found_too() -> None:
    assert not missed([case for case in load_check().FAULTS if not case.fast])


def test_every_fault_of_the_models_is_planted() -> None:
    check = load_check()
    planted = {case.sizes.split()[-1] for case in check.FAULTS}
    text = "".join(path.read_text() for path in _PROTOCOL.glob("*.pml"))
    named = {word for word in text.replace("(", " ").split() if "FAULT_" in word}
    assert named == planted


def test_a_search_that_was_cut_off_is_not_complete() -> None:
    check = load_check()
    case = check.Case("rounds", "ACTORS=2 MEMORIES=2", fast=True)
    result = check.verify(case, check.SAFETY, 0.1, 1000)
    assert check.judge(case, result) == "NOT COMPLETE"


@pytest.mark.parametrize(
    "output, found, complete",
    [
        ("depth reached 9, errors: 0\n 5 states, stored\n", "", True),
        ("error: max search depth too small\ndepth reached 9, errors: 0", "", False),
        (
            "pan:1: assertion violated (x==y) (at depth 7)\n",
            "assertion violated",
            False,
        ),
        ("pan: reached -DMEMLIM bound\ndepth reached 9, errors: 0", "", False),
        ("", "no result", False),
    ],
)
def test_what_pan_prints_is_read(output: str, found: str, complete: bool) -> None:
    result = load_check().read(output, 1.0)
    assert result.found.startswith(found) and result.complete == complete
    assert bool(result.found) == bool(found)

"""Who may import whom: the layers of the architecture, as data."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = {
    "core": 0,
    "networks": 1,
    "losses": 1,
    "memories": 1,
    "environments": 1,
    "worlds": 1,
    "metrics": 1,
    "cluster": 1,
    "models": 2,
    "lifecycle": 2,
    "checkpoints": 2,
    "learners": 3,
    "agents": 4,
    "configurables": 5,
    "train": 5,
    "evaluate": 5,
    "benchmark": 6,
}
PROGRAMS = ("train", "evaluate", "benchmark")  # configured by configurables
WITHOUT_TENSORFLOW = ("core", "memories", "environments", "worlds", "metrics")
FOR_THE_LAUNCHER = (
    "distrl.metrics",
    "distrl.cluster.spec",
    "distrl.core.errors",
    "distrl.lifecycle.failure_policy",
)

Imports = list[tuple[str, str, str]]  # (place, importing part of distrl, module)


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, module) of each import, in functions too; `from a import b` is a.b."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def imports_below(folder: str) -> Imports:
    found: Imports = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        part = path.relative_to(ROOT / folder).with_suffix("").parts[0]
        for line, module in imported(ast.parse(path.read_text())):
            found.append((f"{path.relative_to(ROOT)}:{line}", part, module))
    return found


def may_import(part: str, other: str) -> bool:
    """Down only; within a part; programs read the configuration surface."""
    if part == other or (part in PROGRAMS and other == "configurables"):
        return True
    return LAYERS[other] < LAYERS[part]


def is_one_of(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in prefixes)


@pytest.fixture(scope="module")
def imports() -> Imports:
    return [entry for entry in imports_below("distrl") if entry[1] != "__init__"]


def test_the_walk_sees_all_kinds_of_import():
    code = "import a.b as c\ndef f():\n  from d import e, g\n  from . import h\n"
    assert imported(ast.parse(code)) == [
        (1, "a.b"),
        (3, "d.e"),
        (3, "d.g"),
        (4, "..h"),
    ]


def test_the_rule_knows_down_from_up():
    assert may_import("agents", "cluster") and may_import("train", "configurables")
    assert not may_import("memories", "metrics")  # one layer
    assert not may_import("cluster", "lifecycle")  # up
    assert not may_import("configurables", "train")


def test_every_part_has_a_layer():
    parts = {module.name for module in pkgutil.iter_modules([str(ROOT / "distrl")])}
    assert parts <= set(LAYERS)
    assert {"core", "cluster", "agents", "train"} <= parts


def test_imports_are_absolute(imports):
    assert [place for place, _, module in imports if module.startswith(".")] == []


def test_imports_go_down_only(imports):
    inside = [e for e in imports if e[2].startswith("distrl.")]
    assert len(inside) > 50
    wrong = [e for e in inside if not may_import(e[1], e[2].split(".")[1])]
    assert wrong == []


def test_distrl_knows_no_launcher(imports):
    assert [e for e in imports if is_one_of(e[2], ("launch", "tests"))] == []


def test_gin_and_flags_stay_in_the_programs(imports):
    gin_users = {part for _, part, module in imports if is_one_of(module, ("gin",))}
    assert "configurables" in gin_users
    assert gin_users <= {"configurables", *PROGRAMS}
    flags = {p for _, p, m in imports if is_one_of(m, ("absl.flags", "absl.app"))}
    assert "train" in flags
    assert flags <= set(PROGRAMS)


def test_the_launcher_uses_little_of_distrl():
    wrong = [
        (place, module)
        for place, _, module in imports_below("launch")
        if is_one_of(module, ("distrl",)) and not is_one_of(module, FOR_THE_LAUNCHER)
    ]
    assert wrong == []


_IMPORT_ALL = """
import importlib, pkgutil, sys
import distrl
names = [m.name for m in pkgutil.walk_packages(distrl.__path__, "distrl.")]
names = [n for n in names if n.split(".")[1] in sys.argv[1].split(",")]
assert len(names) > 20, names
# The programs set no_proxy before TensorFlow reads it.
alone = ["distrl.cluster.spec", "distrl.lifecycle.failure_policy", "distrl.train"]
for name in [*names, *alone]:
    importlib.import_module(name)
    if "tensorflow" in sys.modules:
        sys.exit(f"{name} imports tensorflow")
"""


@pytest.mark.timeout(60)
def test_tensorflow_is_not_imported_where_it_is_not_needed():
    result = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, ",".join(WITHOUT_TENSORFLOW)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert result.returncode == 0, result.stderr

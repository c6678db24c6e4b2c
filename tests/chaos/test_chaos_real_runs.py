"""Real runs to which something is done: one for each agent by default; the whole matrix
and all scenarios are slow tests (`python -m distrl.benchmark.chaos` prints them)."""

from __future__ import annotations

import psutil
import pytest

from distrl.benchmark import chaos_cells, chaos_run, chaos_scenarios
from distrl.benchmark.chaos_cells import AGENTS, FAIL, JOBS, LEARNING, Cell, Conditions
from distrl.benchmark.chaos_faults import ELASTIC

FAST = Conditions(secs=15.0)
SLOW = Conditions()
FAST_CELLS = [
    Cell("apex", "kill", "memory"),
    Cell("ppo", "kill", "learner"),
    Cell("impala", "kill", "ps"),
]
MATRIX = [
    Cell(agent, fault, job)
    for agent in AGENTS
    for fault in ("kill", "stop")
    for job in JOBS
]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    """No process whose command line names the test's folder."""
    yield
    commands = [p.info["cmdline"] or () for p in psutil.process_iter(["cmdline"])]
    assert not [c for c in commands if any(str(tmp_path) in word for word in c)]


def check(record):
    assert record["complaints"] == [], record


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", FAST_CELLS, ids=lambda cell: cell.name)
def test_a_run_survives(cell, tmp_path, monkeypatch):
    # It ends itself, and leaves nothing, before it is ended from outside.
    monkeypatch.setattr(chaos_run, "START_SECS", 120.0)
    monkeypatch.setattr(chaos_cells, "_FAREWELL_SECS", 90.0)
    check(chaos_cells.run_cell(cell, FAST, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("cell", MATRIX, ids=lambda cell: cell.name)
def test_every_cell_three_times(cell, repeat, tmp_path):
    check(chaos_cells.run_cell(cell._replace(repeat=repeat), SLOW, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("cell", MATRIX, ids=lambda cell: cell.name)
def test_every_cell_learns(cell, tmp_path):
    check(chaos_cells.run_cell(cell._replace(mode=LEARNING), SLOW, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("cell", MATRIX, ids=lambda cell: cell.name)
def test_a_run_that_must_not_survive_ends(cell, tmp_path):
    check(chaos_cells.run_cell(cell._replace(policy=FAIL), SLOW, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("fault", ["delay", *ELASTIC])
@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_no_failure_is_none(agent, fault, tmp_path):
    check(chaos_cells.run_cell(Cell(agent, fault, "actor"), SLOW, tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(2800)
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_killed_run_is_resumed(agent, learning, tmp_path):
    check(chaos_scenarios.resume(agent, 0, SLOW, tmp_path, learning))


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("agent", AGENTS)
def test_another_run_does_not_notice(agent, tmp_path):
    check(chaos_scenarios.side_by_side(agent, 0, SLOW, tmp_path, False))

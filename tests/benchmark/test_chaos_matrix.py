"""Which cells there are, in which order, with which flags; and the table of them."""

import json

import pytest

from distrl.benchmark import chaos, chaos_cells, chaos_table
from distrl.benchmark.chaos_cells import Cell, Conditions
from distrl.lifecycle.settings import Timeouts


def record(agent, fault, job, repeat=0, complaints=(), run_dir="/nowhere", **more):
    cell = Cell(agent, fault, job, repeat)
    fields = {"complaints": list(complaints), "run_dir": run_dir}
    return {**cell._asdict(), **fields, **more}


def flags_of(*arguments):
    return chaos.parser().parse_args(arguments)


def test_the_matrix_of_the_issue_is_the_default():
    cells = chaos.cells_of(flags_of("--repeats=3"))
    assert len(cells) == len(set(cells)) == 3 * 3 * 2 * 4
    assert {(c.agent, c.fault, c.job) for c in cells[:24]} == {
        (agent, fault, job)
        for agent in ("apex", "ppo", "impala")
        for fault in ("kill", "stop")
        for job in ("actor", "memory", "learner", "ps")
    }
    assert {(c.mode, c.policy) for c in cells} == {("short", "restart")}


def test_cells_are_selected():
    flags = ("--agents=ppo", "--faults=leave,delay", "--jobs=ps,actor", "--learning")
    cells = chaos.cells_of(flags_of(*flags, "--policy=fail"))
    assert [(c.fault, c.job) for c in cells] == [
        ("leave", "actor"),
        ("delay", "ps"),
        ("delay", "actor"),
    ]
    assert {c[-2:] for c in cells} == {("learning", "fail")}


def test_the_matrix_goes_on_where_it_broke_off(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    done = [record("ppo", "kill", "ps"), record("ppo", "kill", "actor", 0, ["a: b"])]
    out.write_text("".join(json.dumps(r) + "\n" for r in done))
    ran = []

    def run_cell(cell, conditions, folder):
        ran.append(cell)
        return record(*cell[:4])

    flags = flags_of("--agents=ppo", "--faults=kill", f"--out={out}", "--skip_done")
    records = chaos.run_matrix(flags, Conditions(), tmp_path, run_cell)
    assert [cell.job for cell in ran] == ["actor", "memory", "learner"]
    assert [r["job"] for r in records] == ["actor", "memory", "learner", "ps"]
    assert len(chaos_table.read(out)) == 4
    assert all(map(chaos_table.good, chaos_table.read(out).values()))
    assert "ppo-kill-memory-0-short-restart: ok" in capsys.readouterr().err


def test_a_last_line_that_broke_off_is_left_out(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text(json.dumps(record("ppo", "kill", "ps")) + '\n{"agent": "ppo", "fau')
    assert list(chaos_table.read(out)) == [Cell("ppo", "kill", "ps")]
    chaos_table.append(out, record("ppo", "kill", "actor"))
    chaos_table.append(out, record("ppo", "kill", "memory"))
    assert len(chaos_table.read(out)) == 3
    assert chaos_table.read(tmp_path / "none") == {}


def test_folders_of_good_runs_go_and_those_of_others_stay(tmp_path):
    flags = flags_of()
    for name, complaints, stays in (("a", [], False), ("b", ["x: y"], True)):
        folder = tmp_path / name
        folder.mkdir()
        chaos.tidy(flags, record("ppo", "kill", "ps", 0, complaints, folder))
        assert folder.exists() == stays
    asked = flags_of(f"--folder={tmp_path}")
    (tmp_path / "a").mkdir()
    chaos.tidy(asked, record("ppo", "kill", "ps", 0, [], tmp_path / "a"))
    assert (tmp_path / "a").exists()


def test_the_table_says_how_many_are_ok_and_what_failed():
    records = [
        record("apex", "kill", job, n) for job in ("ps", "actor") for n in (0, 1)
    ]
    records += [record("apex", "kill", "memory", 0, ["ledger: a", "exit code: 1"])]
    records += [record("apex", "kill", "memory", 1, ["ledger: b"])]
    records += [record("ppo", "stop", "memory", 1)]
    lines = [line.split() for line in chaos_table.matrix(records).splitlines()]
    assert lines == [
        ["agent", "fault", "actor", "memory", "learner", "ps"],
        ["apex", "kill", "ok", "2/2", "0/2,", "ledger,", "exit", "code"]
        + ["-", "ok", "2/2"],
        ["ppo", "stop", "-", "ok", "1/1", "-", "-"],
    ]
    assert chaos_table.complaints(records) == [
        "apex-kill-memory-0-short-restart: ledger: a",
        "apex-kill-memory-0-short-restart: exit code: 1",
        "apex-kill-memory-1-short-restart: ledger: b",
    ]
    assert chaos_table.matrix([]) == "no cell"


def test_every_cell_has_a_seed_of_its_own():
    cells = chaos.cells_of(flags_of("--repeats=3"))
    seeds = [Conditions(seed=4).seed_of(cell) for cell in cells]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= 0
    assert seeds == [Conditions(seed=4).seed_of(cell) for cell in cells]
    assert seeds[0] != Conditions(seed=5).seed_of(cells[0])


def test_a_short_run_ends_by_time_alone_and_traces_rows():
    from launch.flags import parse  # what the launcher makes of it

    cell = Cell("ppo", "kill", "learner")
    conditions = Conditions(secs=30.0, bindings=("Rounds.steps_per_round = 32",))
    run, flags = parse(chaos_cells.arguments_of(cell, conditions, 7))
    assert run.config.parts[-2:] == ("ppo", "cartpole.gin") and run.num_actors == 2
    assert flags.no_final_evaluation and "Run.seed = 7" in run.gin_bindings
    assert run.failures.of("learner") == ("restart", 5)
    assert run.failures.of("actor") == ("restart", 20)
    for line in (
        "StopConditions.max_seconds = 30.0",
        "StopConditions.target_return = None",
        "StopConditions.max_env_steps = None",
        "Run.trace_rows = True",
        "Timeouts.heartbeat_secs = 6.0",
        "Rounds.steps_per_round = 32",
    ):
        assert line in run.gin_bindings


def test_a_learning_run_has_its_own_goal():
    from launch.flags import parse

    cell = Cell("ppo", "kill", "learner", 0, "learning", "fail")
    run, flags = parse(chaos_cells.arguments_of(cell, Conditions(), 7))
    assert not flags.no_final_evaluation
    assert not [line for line in run.gin_bindings if "StopConditions" in line]
    for job in ("actor", "memory", "learner", "ps"):
        assert run.failures.of(job).action == "fail"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--secs=0"], "secs > 0, got 0"),
        (["--heartbeat_secs=4"], "heartbeat_secs >= 5, got 4"),
        (["--stop_secs=5"], "stop_secs > heartbeat_secs, got 5.0 and 6.0"),
        (["--repeats=0"], "repeats >= 1, got 0"),
        (["--skip_done"], "--out"),
        (["--jobs=actor,worker"], "'worker' is none of actor, memory, learner, ps"),
        (["--agents=dqn"], "'dqn'"),
        (["--resume", "--side_by_side"], "not allowed with"),
    ],
)
def test_bad_input_is_told_and_nothing_runs(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        chaos.main(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("complaints, code", [([], 0), (["ledger: x"], 1)])
def test_the_exit_code_is_that_of_the_matrix(monkeypatch, capsys, complaints, code):
    records = [record("apex", "kill", "actor", 0, complaints)]
    monkeypatch.setattr(chaos, "run_matrix", lambda *arguments: records)
    with pytest.raises(SystemExit) as end:
        chaos.main([])
    assert end.value.code == code
    said = capsys.readouterr().out
    assert ("all is well" in said) == (code == 0) and "ledger: x" in said or not code


@pytest.mark.parametrize(
    ("flags", "heartbeat_secs"),
    [
        ([], Conditions().heartbeat_secs),
        (["--soak=1"], Timeouts().heartbeat_secs),
        (["--soak=1", "--heartbeat_secs=9"], 9.0),
        (["--heartbeat_secs=9"], 9.0),
    ],
)
def test_a_soak_has_the_heartbeat_of_the_product_unless_another_is_asked_for(
    flags, heartbeat_secs
):
    assert chaos.conditions_of(flags_of(*flags)).heartbeat_secs == heartbeat_secs

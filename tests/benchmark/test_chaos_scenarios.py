"""What a run must go on from when it is resumed; who comes and goes in a soak."""

import json
import pathlib
import subprocess
import sys
import tempfile

import psutil
import pytest

from distrl.benchmark import chaos_soak
from distrl.benchmark.chaos_cells import Cell
from distrl.benchmark.chaos_run import Ending
from distrl.benchmark.chaos_scenarios import Logs, Saved, check_resumed, newest_saved

CELL = Cell("apex", "kill", "all")


def entry(checkpoint_id, learner, memories, num_memories=1):
    return {
        "checkpoint_id": checkpoint_id,
        "learner": learner,
        "num_memories": num_memories,
        "memories": memories,
    }


def write_checkpoints(run_dir, *entries):
    folder = run_dir / "checkpoints"
    for each in entries:
        steps = each["learner"]
        accounts = {
            "actor/0/5": {"totals": {"env_steps": 3.0 * steps, "episodes": 1}},
            "actor/0/9": {"totals": {"env_steps": 1.0 * steps}},
            "learner/0/6": {"totals": {"learner_steps": steps}},
        }
        run = {"books": {"accounts": accounts}}
        checkpoint = folder / f"{steps:012d}"
        checkpoint.mkdir(parents=True)
        text = json.dumps({"counters": {"learner_steps": steps, "run": run}})
        (checkpoint / "counters.json").write_text(text)
    (folder / "manifest.json").write_text(json.dumps({"entries": entries}))


def test_a_run_goes_on_from_the_newest_whole_checkpoint(tmp_path):
    write_checkpoints(tmp_path, entry(3, 70, []), entry(2, 50, [0]), entry(1, 20, [0]))
    assert newest_saved(tmp_path) == Saved(50, 200, 1)


def test_without_memories_each_checkpoint_is_whole(tmp_path):
    write_checkpoints(tmp_path, entry(3, 70, [], 0), entry(2, 50, [], 0))
    assert newest_saved(tmp_path) == Saved(70, 280, 0)


def test_no_whole_checkpoint_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="no whole checkpoint"):
        newest_saved(tmp_path)
    write_checkpoints(tmp_path, entry(3, 70, []))
    with pytest.raises(RuntimeError, match="no whole checkpoint"):
        newest_saved(tmp_path)


RESTORED = "learner/0 I restored /x/checkpoints/000000000050 at step 50\n"
SNAPSHOT = "memory/0 I memory/0 goes on from a snapshot of 900 rows\n"


def resumed(
    tmp_path, learner=RESTORED, memory=SNAPSHOT, env_steps=300, steps=80, cell=CELL
):
    (tmp_path / "logs").mkdir()
    (tmp_path / "rows").mkdir()
    (tmp_path / "logs" / "learner-0.log").write_text("restored /y/1 at step 1\n")
    (tmp_path / "logs" / "memory-0.log").write_text(SNAPSHOT)
    logs = Logs(tmp_path)
    for name, text in (("learner-0", learner), ("memory-0", memory)):
        with (tmp_path / "logs" / f"{name}.log").open("a") as file:
            file.write(text)
    (tmp_path / "rows" / "actor-0-7.txt").write_text("sent e m/0 actor/0/7 1 5\n")
    summary = {
        "stop_reason": "max_seconds=45.0 reached",
        "failures": {},
        "tasks": [],
        "channels": {"e": {"sent": 5, "received": 0, "lost": 5}},
        "env_steps": env_steps,
        "learner_steps": steps,
    }
    ending = Ending(0, 0.0, (), summary, {}, ())
    saved = Saved(50, 200, 1)
    return list(check_resumed(cell, ending, saved, logs, tmp_path, 0.0))


def test_a_run_that_goes_on_has_no_complaint(tmp_path):
    assert resumed(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"learner": ""}, "learner: it has restored nothing"),
        (
            {"learner": RESTORED.replace("50", "20")},
            "learner: went on at 20, not at 50",
        ),
        ({"memory": ""}, "memory: memory 0 has restored nothing"),
        (
            {"memory": SNAPSHOT.replace("900", "0")},
            "memory: memory 0 has restored nothing",
        ),
        (
            {"env_steps": 190},
            "counters: env_steps 190 do not go on from 200",
        ),
        ({"steps": 50}, "counters: learner_steps 50 do not go on from 50"),
    ],
)
def test_each_way_not_to_go_on(tmp_path, arguments, expected):
    assert resumed(tmp_path, **arguments) == [expected]


def test_only_impala_as_it_learns_keeps_nothing():
    for agent, mode, right in (
        ("impala", "learning", True),
        ("impala", "short", False),
        ("apex", "learning", False),
    ):
        with tempfile.TemporaryDirectory() as folder:
            cell = Cell(agent, "kill", "all", 0, mode)
            memory = SNAPSHOT.replace("900", "0")
            found = resumed(pathlib.Path(folder), memory=memory, cell=cell)
        assert not [c for c in found if c.startswith("memory")] == right


def test_actors_come_and_go_in_turn():
    faults = chaos_soak.comings_and_goings(3, 600.0)
    assert faults == chaos_soak.comings_and_goings(3, 600.0)
    assert faults != chaos_soak.comings_and_goings(4, 600.0)
    assert faults == sorted(faults) and faults[-1].after_secs < 540
    for index in range(1, 5):
        own = [f for f in faults if f.task_index == index]
        assert [f.kind for f in own] == (["join", "leave"] * len(own))[: len(own)]
        gaps = [b.after_secs - a.after_secs for a, b in zip(own, own[1:], strict=False)]
        assert len(own) >= 10 and min(gaps) >= 10 and max(gaps) <= 60
    assert {f.task_index for f in faults} == {1, 2, 3, 4}


def test_tasks_that_stay_are_looked_at_and_others_are_not():
    def line(task, pid, time):
        amounts = {"rss_mb": 300 + time / 10, "threads": 9, "descriptors": 9}
        amounts["graph_operations"] = 9
        return {"task": task, "pid": pid, "time": time, "actors": 2, **amounts}

    samples = [line("ps/0", 1, t) for t in range(0, 600, 5)]
    samples += [line("actor/3", 2, t) for t in range(100, 300, 5)]
    samples += [line("memory/0", 3, t) for t in range(400, 600, 5)]
    grown = chaos_soak.growths(samples)
    assert {g.task for g in grown} == {"ps/0"} and len(grown) == 4
    (complaint,) = chaos_soak.not_flat(grown)
    assert complaint.startswith("growth: ps/0 by 39.") and "MB" in complaint
    assert list(chaos_soak.not_flat([])) == ["growth: too few samples"]


def test_the_table_of_growth_names_what_is_not_flat(capsys):
    samples = [
        {
            "task": "ps/0",
            "pid": 1,
            "time": t,
            "actors": 1,
            "rss_mb": t,
            "threads": 9,
            "descriptors": 9,
            "graph_operations": 9,
        }
        for t in range(0, 600, 5)
    ]
    chaos_soak.print_growth(chaos_soak.growths(samples))
    lines = capsys.readouterr().out.splitlines()
    assert "NOT FLAT" in lines[1] and "3600" in lines[1]
    assert all("NOT" not in line for line in lines[2:])


def test_all_tasks_are_sampled_and_who_is_not_there_is_not(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        gone = psutil.Process(process.pid)
    here = psutil.Process()
    begin = here.create_time()
    tasks = {"ps/0": here, "actor/0": here, "actor/1": gone, "actor/2": here}
    tasks |= {"actor/3": here}
    (tmp_path / "metrics").mkdir()
    for name, line in {
        "ps-0": {"time": begin + 1, "graph_operations": 5},
        "actor-0": {"time": begin + 1, "gauges": {"graph_operations": 6}},
        "actor-1": {"time": begin + 1, "gauges": {"graph_operations": 7}},
        "actor-2": {"time": begin - 1, "gauges": {"graph_operations": 8}},  # last life
    }.items():
        (tmp_path / "metrics" / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    found = list(chaos_soak.sample_all(tasks, tmp_path, 7.0))
    assert [(r["task"], r["graph_operations"]) for r in found] == [
        ("ps/0", 5),
        ("actor/0", 6),
    ]
    assert all(r["actors"] == 4 and r["time"] == 7.0 for r in found)


def test_an_empty_table_is_told(capsys):
    chaos_soak.print_growth([])
    assert "too few samples" in capsys.readouterr().out

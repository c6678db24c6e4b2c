import numpy as np
import pytest

from distrl.agents.behaviour import Decision
from distrl.benchmark import acting, channels, learning, replaying, run
from distrl.benchmark.measuring import json_lines, output_of
from distrl.benchmark.memories import Producer
from distrl.core.specs import ArraySpec, EnvironmentSpec, leaves, validate
from distrl.environments.vector_environment import VectorStep
from distrl.memories.prioritized import PrioritizedMemory

CARTPOLE = "configs/apex/cartpole.gin"
TINY = ["--secs=0.1", "--repeats=2", "--gin_binding=ApexAgent.num_envs = 4"]


def only_record(text):
    (record,) = json_lines(text)
    return record


@pytest.fixture
def config(request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    return f"--config={CARTPOLE}"


@pytest.mark.parametrize("program", [acting, channels, learning, replaying, run])
def test_help_says_what_is_measured(program, capsys):
    with pytest.raises(SystemExit, match="0"):
        program.main(["--help"])
    text = capsys.readouterr().out
    assert program.__doc__.splitlines()[0] in text
    assert "cpu" in text and "--secs" in text


@pytest.mark.parametrize("program", [acting, learning, replaying, run])
@pytest.mark.parametrize(
    ("flag", "words"), [("--secs=0", "in 0.0 s"), ("--repeats=0", "0 repeats in")]
)
def test_bad_input_is_one_line(program, flag, words, config, capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main([config, flag])
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert words in printed.err


def test_unknown_config_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        acting.main(["--config=nowhere.gin"])
    error = capsys.readouterr().err
    assert error.startswith("acting: ") and "nowhere.gin" in error


def test_acting(config, capsys):
    acting.main([config, *TINY])
    record = only_record(capsys.readouterr().out)
    assert record["part"] == "acting" and record["num_envs"] == 4
    assert record["env_steps_per_sec"] > 0
    sections = [record[f"{name}_cpu_ms"] for name in acting.SECTIONS]
    assert min(sections) > 0
    assert sum(sections) <= 1.5 * record["cpu_ms"]  # medians, each on its own


def test_actor_step_counts_env_steps_and_empties_the_accumulator():
    class Environment:
        def reset(self):
            return 0, {}

        def step(self, action):
            return VectorStep(action + 1, "reward", "terminated", "truncated", {})

    class Policy:
        def decide(self, observation):
            return Decision(observation, "taken", "max")

    class Accumulator:
        ready = False
        taken = 0
        rows = []

        def add(self, *row):
            self.rows.append(row)
            self.ready = len(self.rows) % 2 == 0
            return 4

        def take(self):
            self.taken += 1

    accumulator, clock = Accumulator(), acting.SectionClock()
    step = acting.actor_step(Environment(), Policy(), accumulator, clock)
    assert [step() for _ in range(4)] == [4] * 4
    known = ("taken", "max", "reward", "terminated", "truncated")
    assert accumulator.rows == [(n, n, *known) for n in range(4)]
    assert accumulator.taken == 2


def test_learning(config, capsys):
    learning.main([config, *TINY, "--gin_binding=Replay.batch_size = 16"])
    record = only_record(capsys.readouterr().out)
    assert record["part"] == "learning" and record["batch_size"] == 16
    assert record["learner_steps_per_sec"] > 0 and record["cpu_ms"] > 0


def test_random_batches_fit_the_spec_and_its_bounds():
    spec = EnvironmentSpec(
        {
            "image": ArraySpec((4, 3, 3), "uint8", 0, 255, num_stacked=4),
            "speed": ArraySpec((2,), "float32"),
            "place": ArraySpec((2,), "int32", (0, 5), (9, 9)),
        },
        ArraySpec((), "int64", 3, 5),
    )
    batch = learning.random_batch(spec, 50, np.random.default_rng(0))
    validate(spec.observation, batch.transition.s_t, 1, "s_t")
    validate(spec.action, batch.transition.a_tm1, 1, "a_tm1")
    assert set(batch.transition.a_tm1) == {3, 4, 5}
    assert set(np.unique(batch.transition.s_t["place"])) <= set(range(5, 10))
    assert all(len(leaf) == 50 for leaf in leaves(batch))


def test_replaying(config, capsys):
    replaying.main([config, *TINY, "--rows=500"])
    record = only_record(capsys.readouterr().out)
    assert record["part"] == "replaying" and record["memory"] == "PrioritizedMemory"
    assert record["size"] >= 500
    costs = [record[f"{name}_cpu_us"] for name in ("insert", "sample", "update")]
    assert min(costs) > 0


@pytest.mark.parametrize(("rows", "size"), [(1000, 1000), (10**9, 3000)])
def test_fill_reaches_the_rows_or_the_capacity(rows, size):
    spec = EnvironmentSpec(ArraySpec((2,), "float32"), ArraySpec((), "int64", 0, 1))
    memory = PrioritizedMemory(spec, 3000, 0)
    producer = Producer(spec, num_streams=3, n_step=5)
    replaying.fill(memory, producer, rows)
    assert size <= memory.size <= size + replaying.FILL_TIMES * 3
    assert memory.orphans == 0


@pytest.mark.timeout(120)
def test_channels():
    records = json_lines(
        output_of(["distrl.benchmark.channels", "--secs=0.05", "--repeats=2"])
    )
    pairs = [(record["message_bytes"], record["transport"]) for record in records]
    kinds = (channels.CHANNEL, channels.QUEUE)
    assert pairs == [(size, kind) for size in channels.SIZES for kind in kinds]
    for record in records:
        assert record["messages_per_sec"] > 0 and record["cpu_ratio"] > 0
        both = record["client_cpu_ms"] + record["owner_cpu_ms"]
        assert record["cpu_ms"] == pytest.approx(both, rel=1e-2)

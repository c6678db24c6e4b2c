"""One task of a run: `python -m distrl.train --job_name=actor --task_index=0 …`."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Iterator

from absl import app, flags

from distrl.cluster.spec import (
    ELASTIC_JOBS,
    JOBS,
    ClusterSpec,
    cluster_from_file,
    cluster_from_flags,
)
from distrl.core.errors import (
    ConfigError,
    DistrlError,
    Diverged,
    RunEnding,
    RunFailed,
)
from distrl.lifecycle.signals import Signals

FLAGS = flags.FLAGS

flags.DEFINE_enum("job_name", None, JOBS, "What this process does in the run.")
flags.DEFINE_integer("task_index", None, "Which of that job's tasks it is, from 0.")
flags.DEFINE_string("gin_file", None, "The experiment.")
flags.DEFINE_multi_string("gin_binding", [], "A line of gin on top of the file.")
flags.DEFINE_string("ps_hosts", "", "host:port of each ps, comma-separated.")
flags.DEFINE_string("memory_hosts", "", "host:port of each memory.")
flags.DEFINE_string("learner_hosts", "", "host:port of each learner.")
flags.DEFINE_string("actor_hosts", "", "Hosts of the actors; they are only counted.")
flags.DEFINE_integer("num_actors", None, "Number of actors, in place of their hosts.")
flags.DEFINE_string("cluster", "", "A JSON file in place of the host flags.")
flags.DEFINE_string("run_dir", None, "Where the run leaves its files.")
flags.DEFINE_integer("restart", 0, "How often it was started before.", lower_bound=0)
flags.DEFINE_integer(
    "incarnation",
    0,
    "Larger than those of its earlier starts; 0: the time in ns, if the clock goes on.",
    lower_bound=0,
)
flags.DEFINE_bool("resume", False, "Go on with the run that run_dir holds.")
flags.DEFINE_bool("watch_stdin", False, "End at once when standard input does.")
flags.mark_flags_as_required(["job_name", "task_index", "gin_file", "run_dir"])

# Exit codes.
OK, FAILED, BAD_INPUT, FAILED_ELSEWHERE, DIVERGED = 0, 1, 2, 3, 5


def read_cluster() -> ClusterSpec:
    """The cluster of the flags. Raises ConfigError."""
    hosts = (FLAGS.ps_hosts, FLAGS.memory_hosts, FLAGS.learner_hosts, FLAGS.actor_hosts)
    if FLAGS.cluster:
        if any(hosts) or FLAGS.num_actors is not None:
            raise ConfigError("--cluster stands in place of the host flags; give one")
        cluster = cluster_from_file(FLAGS.cluster)
    else:
        cluster = cluster_from_flags(*hosts, num_actors=FLAGS.num_actors)
    cluster.check_task(FLAGS.job_name, FLAGS.task_index)
    if len(cluster.learner) > 1:
        raise ConfigError(
            f"learner_hosts: {len(cluster.learner)} learners are not supported yet, "
            "expected 1"
        )
    return cluster


def prepare_run_dir(
    run_dir: pathlib.Path, job: str, resume: bool, restart: int
) -> None:
    """Raises RunEnding or ConfigError when a run has ended in this directory, or when
    it is of no use."""
    with needed(run_dir):
        check_former_run(run_dir, job, resume, restart)
        for name in ("metrics", "logs"):
            (run_dir / name).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def needed(path: pathlib.Path) -> Iterator[None]:
    """A task cannot begin without what is written within: OSError becomes
    ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--run_dir: cannot use {path}: {error}") from error


def check_former_run(
    run_dir: pathlib.Path, job: str, resume: bool, restart: int
) -> None:
    """Whether what is in the directory allows this task to begin: as
    `prepare_run_dir`, and OSError."""
    summary = run_dir / "summary.json"
    if summary.exists():
        if job == "learner" and resume and not restart:
            set_aside(summary)
        elif job in ELASTIC_JOBS and not resume:
            raise RunEnding(f"the run in {run_dir} has already ended")
        elif not resume and not (job == "learner" and restart):  # it died behind it
            raise ConfigError(
                f"--run_dir: {run_dir} holds a run that has ended; --resume goes on "
                "with it"
            )
    if job == "learner" and (run_dir / "config.gin").exists():
        if not (resume or restart):
            raise ConfigError(
                f"--run_dir: {run_dir} holds another run; --resume goes on with it, "
                "--restart=1 takes its learner's place while it is under way"
            )
    elif job == "learner" and resume:
        raise ConfigError(f"--resume: there is no run in {run_dir}")


def set_aside(summary: pathlib.Path) -> None:
    """Keeps the summary of a run that is resumed under the next free number."""
    names = (summary.with_name(f"summary.{n}.json") for n in itertools.count(1))
    summary.rename(next(name for name in names if not name.exists()))


def keep_config(path: pathlib.Path, text: str, restart: int) -> None:
    """Writes what the run is configured by, whole or not at all. Raises ConfigError.

    In the place of a learner that has written it, there is nothing to do, which is as
    well if the disk has become full since.
    """
    from distrl.checkpoints.directories import replace_file

    with needed(path):
        if not (restart and path.exists()):
            replace_file(path, text.encode())


def run_task(signals: Signals) -> None:
    """The whole life of one task. Raises what went wrong."""
    cluster = read_cluster()
    run_dir = pathlib.Path(FLAGS.run_dir)
    prepare_run_dir(run_dir, FLAGS.job_name, FLAGS.resume, FLAGS.restart)
    cluster.bypass_proxies()
    from distrl import configurables  # imports TensorFlow: seconds
    from distrl.lifecycle.task import Task

    experiment = configurables.read_experiment(FLAGS.gin_file, FLAGS.gin_binding)
    task = Task(
        FLAGS.job_name,
        FLAGS.task_index,
        cluster,
        experiment.run,
        run_dir,
        configurables.all_settings(),
        signals,
        FLAGS.restart,
        FLAGS.resume,
        FLAGS.incarnation,
    )
    if FLAGS.job_name == "learner" and FLAGS.task_index == 0:
        text = configurables.operative_text()
        keep_config(run_dir / "config.gin", text, FLAGS.restart)
    try:
        experiment.agent.run(task)
    except (RunEnding, RunFailed):
        raise
    except BaseException as error:
        fatal = isinstance(error, ConfigError | Diverged)
        task.fail(f"{type(error).__name__}: {error}", fatal)
        raise


def end_with_stdin() -> None:
    """Ends the process when its launcher, which holds the other end, is gone."""

    def watch() -> None:
        sys.stdin.buffer.read()
        logging.error("the launcher is gone")
        os._exit(FAILED)

    threading.Thread(target=watch, name="watch stdin", daemon=True).start()


def complain(text: str) -> None:
    """Writes to standard error, if it can be: its disk, too, may be full."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)


def exit_code(signals: Signals) -> int:
    """Runs the task and says how it went, in the log and as an exit code."""
    name = f"{FLAGS.job_name}/{FLAGS.task_index}"
    try:
        run_task(signals)
        return OK
    except RunEnding as error:
        logging.info("%s: %s", name, error)
        return OK
    except RunFailed as error:
        logging.error("%s: the run has failed: %s", name, error)
        return FAILED_ELSEWHERE
    except ConfigError as error:
        first_line = str(error).splitlines()[0]  # gin adds lines about its callers
        complain(f"{name}: {first_line}\n")
        return BAD_INPUT
    except DistrlError as error:
        logging.error("%s: %s", name, error)
        return DIVERGED if isinstance(error, Diverged) else FAILED
    except BaseException:
        complain(traceback.format_exc())
        logging.error("%s: ended by the error above", name)
        return FAILED


def main(argv: list[str]) -> None:
    signals = Signals().install()
    name = f"{FLAGS.job_name}/{FLAGS.task_index}"
    logging.basicConfig(
        level=logging.INFO,
        force=True,
        format=f"%(asctime)s {name} %(levelname).1s %(message)s",
    )
    if len(argv) > 1:
        complain(f"{name}: unexpected arguments {argv[1:]}\n")
        os._exit(BAD_INPUT)
    if FLAGS.watch_stdin:
        end_with_stdin()
    code = exit_code(signals)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)  # a session to a peer that is gone would hold up a normal exit


if __name__ == "__main__":
    app.run(main)

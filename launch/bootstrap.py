"""The virtual environment that the programs run in. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("check", "launch/test", "launch/train")  # without .py, so named for ruff
STYLE_COMMANDS = (
    ("ruff", "format", "--check", ".", *SCRIPTS),
    ("ruff", "check", ".", *SCRIPTS),
    ("mypy",),
)
Installer = Callable[[Path, Path, int], None]  # environment, lock file, flock's fd


class SetUpFailed(Exception):
    """The environment cannot be made; reported in one line."""


def enter(*arguments: str) -> NoReturn:
    """Replaces this process by the environment's Python with these arguments."""
    python = str(prepare())
    sys.stdout.flush()
    os.execv(python, [python, *arguments])


def prepare() -> Path:
    """The environment's Python; the repository is on the path of what it starts.

    Ends the program with a message when there is no way to make the environment.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        python = ensure(ROOT)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (SetUpFailed, OSError) as error:
        sys.exit(f"setting up {ROOT / '.venv'} failed: {error}")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    return python


def ensure(root: Path, install: Installer | None = None) -> Path:
    """The Python of `root`/.venv, which is made anew if it is missing or stale.

    It is stale when it was made from another lock file or by another Python, or when
    making it did not come to its end. Two processes that find it stale make it once.
    Raises SetUpFailed or OSError.
    """
    environment, lock = root / ".venv", root / "requirements.lock"
    if not is_fresh(environment, lock):
        with _alone(lock) as descriptor:
            if not is_fresh(environment, lock):
                _make(environment, lock, descriptor, install or install_with_pip)
    return environment / "bin" / "python"


def is_fresh(environment: Path, lock: Path) -> bool:
    """Whether a whole environment is there, made from this lock by this Python."""
    if not os.access(environment / "bin" / "python", os.X_OK):
        return False
    try:
        return _stamp_file(environment).read_text() == stamp(lock)
    except FileNotFoundError:
        return False


def stamp(lock: Path) -> str:
    """What tells one environment from another: lock, Python, machine."""
    made_of = [platform.python_implementation(), platform.python_version()]
    text = "\n".join([*made_of, platform.machine(), lock.read_text()])
    return hashlib.sha256(text.encode()).hexdigest()


def install_with_pip(environment: Path, lock: Path, descriptor: int) -> None:
    """A new environment with everything the lock names. Raises SetUpFailed."""
    missing = [m for m in ("venv", "ensurepip") if not importlib.util.find_spec(m)]
    if missing:
        raise SetUpFailed(
            f"{sys.executable} comes without {' and '.join(missing)}; install it "
            "(on Debian and Ubuntu: apt-get install python3-venv)"
        )
    print(f"setting up {environment} (minutes, once)", file=sys.stderr, flush=True)
    # In a virtual environment, maybe the one to be cleared, `executable` is its own.
    base = getattr(sys, "_base_executable", None) or sys.executable
    python = str(environment / "bin" / "python")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run([base, "-I", "-m", "venv", "--clear", str(environment)], descriptor)
    _run([python, "-I", "-m", "pip", "install", *quiet, "-r", str(lock)], descriptor)


def _make(environment: Path, lock: Path, descriptor: int, install: Installer) -> None:
    _stamp_file(environment).unlink(missing_ok=True)
    made_of = stamp(lock)
    install(environment, lock, descriptor)
    _stamp_file(environment).write_text(made_of)


def _stamp_file(environment: Path) -> Path:
    return environment / "distrl-stamp"


def _run(command: list[str], descriptor: int) -> None:
    """A child that keeps the lock while it lives, even if this process is killed."""
    code = subprocess.run(command, pass_fds=(descriptor,)).returncode
    if code:
        raise SetUpFailed(f"{' '.join(command)} ended with exit code {code}")


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[int]:
    """Only one process at a time gets in here; waits for the other one."""
    with lock.open("a") as file:  # some file systems lock only what is open to write
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up to end", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()

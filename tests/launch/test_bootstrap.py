"""When the environment is made, and by whom."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from launch import bootstrap


class FakeInstaller:
    """Makes something that looks like an environment; counts how often."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None

    def __call__(self, environment: Path, lock: Path, descriptor: int) -> None:
        self.count += 1
        (environment / "bin").mkdir(parents=True, exist_ok=True)
        python = environment / "bin" / "python"
        python.touch(mode=0o755)
        if self.error is not None:
            raise self.error


@pytest.fixture
def root(tmp_path):
    (tmp_path / "requirements.lock").write_text("a==1\n")
    return tmp_path


@pytest.fixture
def install():
    return FakeInstaller()


def test_an_environment_is_made_once(root, install):
    python = bootstrap.ensure(root, install)
    assert python == root / ".venv" / "bin" / "python"
    assert bootstrap.ensure(root, install) == python
    assert install.count == 1


def test_the_lock_file_is_left_as_it_is(root, install):
    before = (root / "requirements.lock").stat().st_mtime_ns
    bootstrap.ensure(root, install)
    assert (root / "requirements.lock").read_text() == "a==1\n"
    assert (root / "requirements.lock").stat().st_mtime_ns == before


def test_another_lock_makes_it_stale(root, install):
    bootstrap.ensure(root, install)
    (root / "requirements.lock").write_text("a==2\n")
    bootstrap.ensure(root, install)
    bootstrap.ensure(root, install)
    assert install.count == 2


def test_another_python_makes_it_stale(root, install, monkeypatch):
    bootstrap.ensure(root, install)
    monkeypatch.setattr(bootstrap.platform, "python_version", lambda: "3.99.0")
    bootstrap.ensure(root, install)
    assert install.count == 2


def test_a_lost_python_makes_it_stale(root, install):
    python = bootstrap.ensure(root, install)
    python.unlink()
    python.symlink_to(root / "uninstalled")
    bootstrap.ensure(root, lambda *of: (python.unlink(), install(*of)))
    assert install.count == 2


def test_what_was_half_made_is_made_again(root, install):
    bootstrap.ensure(root, install)
    (root / "requirements.lock").write_text("a==2\n")
    install.error = bootstrap.SetUpFailed("no space left")
    with pytest.raises(bootstrap.SetUpFailed, match="no space left"):
        bootstrap.ensure(root, install)
    install.error = None
    # Back to the first lock: what is there is no longer what was made for it.
    (root / "requirements.lock").write_text("a==1\n")
    bootstrap.ensure(root, install)
    assert install.count == 3


def test_two_set_ups_at_the_same_time_make_it_once(root, install):
    inside, go_on = threading.Event(), threading.Event()

    def slow_install(*arguments) -> None:
        inside.set()
        assert go_on.wait(10)
        install(*arguments)

    first = threading.Thread(target=bootstrap.ensure, args=(root, slow_install))
    first.start()
    assert inside.wait(10)
    code = (
        "import pathlib, sys; from launch import bootstrap\n"
        "def never(*_): sys.exit('made twice')\n"
        "bootstrap.ensure(pathlib.Path(sys.argv[1]), never)"
    )
    second = subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=bootstrap.ROOT,
    )
    assert "waiting for another set-up" in second.stderr.readline()
    go_on.set()
    first.join(10)
    assert second.communicate(timeout=10)[1] == "" and second.returncode == 0
    assert install.count == 1


def test_a_python_without_venv_is_told_so(root, monkeypatch):
    monkeypatch.setattr(
        bootstrap.importlib.util, "find_spec", lambda name: name != "ensurepip"
    )
    with pytest.raises(bootstrap.SetUpFailed, match="without ensurepip.*python3-venv"):
        bootstrap.ensure(root)
    assert not (root / ".venv").exists()


def test_a_failing_step_is_told():
    with pytest.raises(bootstrap.SetUpFailed, match="exit code"):
        bootstrap._run([sys.executable, "-c", "raise SystemExit(4)"], 0)


@pytest.mark.parametrize("program", ["launch/train", "launch/test", "check", ".ci/run"])
def test_programs_can_be_executed(program):
    path = bootstrap.ROOT / program
    assert path.stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("program", bootstrap.SCRIPTS)
def test_programs_name_their_need_to_an_old_python(program):
    source = (bootstrap.ROOT / program).read_text()
    code = (
        "import sys; sys.version_info = (3, 6, 15); sys.version = '3.6.15 (old)';"
        "exec(compile(sys.stdin.read(), sys.argv[1], 'exec'), "
        "{'__file__': sys.argv[1], '__name__': '__main__'})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(bootstrap.ROOT / program)],
        input=source,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr == "distrl needs Python 3.10 or newer, this is 3.6.15\n"


def test_the_lock_names_no_machine_and_no_registry():
    lines = (bootstrap.ROOT / "requirements.lock").read_text().splitlines()
    assert any(line.startswith("tensorflow==") for line in lines)
    assert not [line for line in lines if "/" in line or line.startswith("-")]

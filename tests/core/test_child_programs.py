"""Whole programs with children: killed, forgetful, unguarded."""

import subprocess
import sys

import child_objects
import pytest
from child_objects import is_gone, wait_until

from distrl.core import child_process

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_left")]


ORPHANS = """
import time
from child_objects import Counter
from distrl.core.child_process import ChildProcess

if __name__ == "__main__":
    children = [ChildProcess(Counter, f"child {{i}}", "{method}") for i in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.wait_ready()
    for child, call in zip(children, ["sleep"] + 3 * ["sleep_deaf"]):
        child.call(call, 20)
    print(*[child.pid for child in children], flush=True)
    time.sleep(60)
"""


def test_no_orphan_outlives_a_killed_parent(start_method, tmp_path):
    script = child_objects.start_script(ORPHANS.format(method=start_method), tmp_path)
    with script:
        try:
            pids = [int(pid) for pid in script.stdout.readline().split()]
            assert len(pids) == 4 and not any(map(is_gone, pids))
        finally:
            script.kill()
            script.wait()
        wait_until(lambda: all(map(is_gone, pids)), 5.0, f"the end of {pids}")


FORGETFUL = """
from child_objects import Counter
from distrl.core.child_process import ChildProcess

if __name__ == "__main__":
    children = [ChildProcess(Counter, f"child {{i}}", "{method}") for i in range(2)]
    for child in children:
        child.start()
        child.wait_ready()
    children[1].call("sleep", 60)
    print(*[child.pid for child in children], flush=True)
"""


def test_a_program_that_forgets_to_close_ends(start_method, tmp_path):
    script = child_objects.start_script(FORGETFUL.format(method=start_method), tmp_path)
    with script:
        out, errors = script.communicate(timeout=10.0)
    assert script.returncode == 0, errors
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 2
    wait_until(lambda: all(map(is_gone, pids)), 1.0, f"the end of {pids}")


UNGUARDED = """
from child_objects import Counter
from distrl.core.child_process import ChildProcess

child = ChildProcess(Counter, "child 7", "{method}")
child.start()
child.wait_ready()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_an_unguarded_program_is_told_so(method, tmp_path):
    script = child_objects.start_script(UNGUARDED.format(method=method), tmp_path)
    with script:
        _, errors = script.communicate(timeout=20.0)
    assert script.returncode != 0
    assert errors.count("ChildDied: child 7") == 1, errors
    assert 'if __name__ == "__main__"' in errors.splitlines()[-1]


def test_no_heavy_import_comes_with_it():
    text = "import sys, distrl.core.child_process as m; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert not {"tensorflow", "gymnasium"} & set(done.stdout.split())
    assert child_process.__name__ in done.stdout

"""Arrays in anonymous shared memory: contents, layout, and that nothing stays."""

import gc
import os
import pickle

import child_objects
import numpy as np
import psutil
import pytest

from distrl.core.child_process import START_METHODS, ChildProcess
from distrl.core.shared_arrays import SharedArrays

pytestmark = pytest.mark.timeout(60)
RECORD = np.dtype([("a", np.uint8), ("b", np.float64, (3,))])
FIELDS = [
    ((3, 5), np.dtype(np.uint8)),
    ((), np.dtype(np.float64)),
    ((0,), np.dtype(np.int64)),
    ((2, 0, 4), np.dtype(np.float32)),
    ((7,), np.dtype(np.float16)),
    ((4,), np.dtype(np.bool_)),
    ((2, 2), np.dtype("U5")),
    ((3,), RECORD),
    ((2,), np.dtype(">i4")),
    ((2,), np.dtype("datetime64[ns]")),
    ((1,), np.dtype(np.complex128)),
]


class Writer:
    """Lives in a child; writes into arrays that it was sent."""

    def attach(self, fd, layout):
        self.shared = SharedArrays.attach(fd, layout)

    def write(self, index, value):
        self.shared.arrays[index][...] = value

    def read(self, index):
        return self.shared.arrays[index].copy()

    def close(self):
        self.shared.close()


def descriptors():
    gc.collect()
    return {target for _, target in child_objects.open_descriptors()}


@pytest.fixture(autouse=True)
def nothing_left():
    before = descriptors(), set(os.listdir("/dev/shm"))
    yield
    assert not any("memfd:distrl" in name for name in descriptors() - before[0])
    assert not any("distrl" in name for name in set(os.listdir("/dev/shm")) - before[1])


def test_arrays_are_what_was_asked_for():
    with SharedArrays.create(FIELDS) as shared:
        assert len(shared.arrays) == len(FIELDS)
        for array, (shape, dtype) in zip(shared.arrays, FIELDS, strict=True):
            assert (array.shape, array.dtype) == (shape, dtype)
            assert array.flags.c_contiguous and array.flags.writeable
            assert array.ctypes.data % 64 == 0
            assert array.tobytes() == bytes(array.nbytes)


def test_what_one_writes_the_other_reads_and_no_arrays_overlap():
    ours = SharedArrays.create(FIELDS)
    theirs = SharedArrays.attach(
        os.dup(ours.fd), pickle.loads(pickle.dumps(ours.layout))
    )
    rng = np.random.default_rng(0)
    contents = [rng.bytes(array.nbytes) for array in ours.arrays]
    for array, content in zip(ours.arrays, contents, strict=True):
        flat = np.ndarray((array.nbytes,), np.uint8, array)
        flat[:] = np.frombuffer(content, np.uint8)
    assert [array.tobytes() for array in theirs.arrays] == contents
    theirs.arrays[1][...] = 3.5
    assert ours.arrays[1] == 3.5
    del array, flat
    ours.close()
    assert theirs.arrays[1] == 3.5
    theirs.close()


@pytest.mark.parametrize("method", START_METHODS)
def test_a_child_shares_them(method):
    shared = SharedArrays.create(FIELDS)
    with ChildProcess(Writer, "writer", method) as child:
        child.start()
        child.wait_ready()
        child.send_descriptor("attach", shared.fd, shared.layout).result()
        child.call("write", 0, 7).result()
        assert (shared.arrays[0] == 7).all()
        shared.arrays[4][2] = 1.5
        assert child.call("read", 4).result()[2] == 1.5
    assert (shared.arrays[0] == 7).all()
    shared.close()


@pytest.mark.parametrize("fields", [[], [((0,), np.uint8)]])
def test_nothing_to_share(fields):
    with SharedArrays.create(fields) as shared:
        assert [array.size for array in shared.arrays] == [0] * len(fields)


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((3,), object, "dtype object"),
        ((3,), np.dtype([("a", object)]), "dtype"),
        ((3,), "U", "no fixed size"),
        ((3,), np.dtype((np.float32, (2,))), "has a shape"),
        ((3, -1), np.float32, r"\(3, -1\)"),
    ],
)
def test_what_cannot_be_shared(shape, dtype, text):
    with pytest.raises(ValueError, match=text):
        SharedArrays.create([((1,), np.uint8), (shape, dtype)])


def test_a_block_that_is_too_small():
    with SharedArrays.create([((10,), np.uint8)]) as small:
        fd = os.dup(small.fd)
        with pytest.raises(ValueError, match="needs 128 bytes, the block has 64"):
            SharedArrays.attach(fd, (((65,), np.dtype(np.uint8)),))
        with pytest.raises(OSError):
            os.fstat(fd)


def test_close_is_idempotent_and_closes_the_descriptor_at_once():
    shared = SharedArrays.create([((10,), np.uint8)])
    array, fd = shared.arrays[0], shared.fd
    array[:] = 3
    shared.close()
    shared.close()
    with pytest.raises(OSError):
        os.fstat(fd)
    assert shared.arrays == [] and shared.fd == -1
    array[0] = 4  # still memory
    assert array.sum() == 31


def test_memory_is_given_back():
    size = 64 << 20
    shared = SharedArrays.create([((size,), np.uint8)])
    array = shared.arrays[0]
    array[:] = 1
    full = psutil.Process().memory_info().rss
    shared.close()
    assert psutil.Process().memory_info().rss > full - size // 2
    del array
    gc.collect()
    assert psutil.Process().memory_info().rss < full - size // 2


def test_a_thousand_blocks_leave_nothing():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        SharedArrays.create(FIELDS).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_pickles_are_refused():
    with SharedArrays.create(FIELDS) as shared:
        with pytest.raises(TypeError, match="send `fd` and `layout`"):
            pickle.dumps(shared)


def test_without_memfd(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with SharedArrays.create(FIELDS) as shared:
        shared.arrays[0][:] = 5
        with SharedArrays.attach(os.dup(shared.fd), shared.layout) as other:
            assert (other.arrays[0] == 5).all()


KILLED = """
import time
import numpy as np
from distrl.core.shared_arrays import SharedArrays

shared = SharedArrays.create([((1 << 20,), np.uint8)])
shared.arrays[0][:] = 1
print("ready", flush=True)
time.sleep(60)
"""


def test_nothing_stays_behind_a_killed_process(tmp_path):
    before = set(os.listdir("/dev/shm"))
    with child_objects.start_script(KILLED, tmp_path) as script:
        try:
            assert script.stdout.readline() == "ready\n"
        finally:
            script.kill()
    assert not {n for n in set(os.listdir("/dev/shm")) - before if "distrl" in n}

import functools
import sys

import cv2
import numpy as np
import pytest
from small_environments import CountEnv
from small_vectors import by_gymnasium, serial, shared

from distrl.core.errors import ConfigError
from distrl.environments.video_recorder import VideoRecorder, tile_images


class PictureEnv(CountEnv):
    """Frames of one gray that tells the count, large enough for a codec; red is 255."""

    def render(self):
        frame = np.full((32, 48, 3), 20 * self.count, np.uint8)
        frame[..., 0] = 255
        return frame


MAKE = functools.partial(PictureEnv, 10, render_mode="rgb_array")


def record(environment, num_steps):
    with environment:
        environment.reset()
        for _ in range(num_steps):
            environment.step(np.zeros(environment.num_envs, int))


def frames(path):
    video, found = cv2.VideoCapture(str(path)), []
    while True:
        there, frame = video.read()
        if not there:
            video.release()
            return np.array(found)
        found.append(frame[:, :, ::-1])


@pytest.mark.parametrize("back_end", [serial, shared, by_gymnasium])
@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.timeout(60)
def test_two_videos(tmp_path, back_end, num_envs):
    environment = back_end(MAKE, num_envs)
    for length in (10, 100):
        for every in (1, 50):
            if length == 100 and back_end is not serial:
                continue
            folder = tmp_path / f"{length}-{every}"
            recorder = VideoRecorder(environment, folder, every, length)
            recorder._close = recorder._finish  # the back-end is used again
            record(recorder, every + length + 1)
            files = sorted(folder.iterdir())
            assert len(files) == 2
            assert all(file.stat().st_size > 0 for file in files)
            assert files[0].name == "step-000000000.mp4"
            assert len(frames(files[0])) == length + 1
    environment.close()


def test_shows_what_was_rendered(tmp_path):
    record(VideoRecorder(serial(MAKE, 3), tmp_path, 100, 5), 20)
    (path,) = tmp_path.iterdir()
    shown = frames(path)
    assert shown.shape == (6, 64, 96, 3)
    for time, frame in enumerate(shown):
        tiles = frame[:32, :48], frame[:32, 48:], frame[32:, :48]
        for tile in tiles:
            np.testing.assert_allclose(tile[8:-8, 8:-8, 0], 255, atol=12)
            np.testing.assert_allclose(tile[8:-8, 8:-8, 2], 20 * time, atol=12)
    np.testing.assert_allclose(shown[:, 40:-8, 56:-8], 0, atol=12)  # no fourth one


def test_every_and_length(tmp_path):
    recorder = VideoRecorder(serial(MAKE), tmp_path, every=4, length=2, slots=[1])
    record(recorder, 9)
    files = sorted(tmp_path.iterdir())
    assert [file.stem for file in files] == [f"step-{n:09}" for n in (0, 4, 8)]
    assert [len(frames(file)) for file in files] == [3, 3, 2]  # the last was cut
    assert frames(files[0]).shape[1:] == (32, 48, 3)
    assert recorder.unwrapped._closed


def test_renders_only_for_videos(tmp_path):
    environment = serial(MAKE)
    rendered = []
    render = environment.render
    environment.render = lambda: rendered.append(0) or render()
    recorder = VideoRecorder(environment, tmp_path, every=100, length=3)
    record(recorder, 30)
    assert len(rendered) == 4


def test_tiles():
    images = np.arange(1, 6, dtype=np.uint8)[:, None, None, None] * np.ones(
        (1, 2, 3, 1), np.uint8
    )
    for number, rows, columns in [
        (1, 1, 1),
        (2, 2, 1),
        (3, 2, 2),
        (4, 2, 2),
        (5, 3, 2),
    ]:
        tiled = tile_images(images[:number])
        assert tiled.shape == (2 * rows, 3 * columns, 1) and tiled.dtype == np.uint8
        grid = np.zeros(rows * columns, int)
        grid[:number] = range(1, number + 1)
        np.testing.assert_array_equal(tiled[::2, ::3, 0], grid.reshape(rows, columns))
        np.testing.assert_array_equal(tiled[1::2, 2::3], tiled[::2, ::3])
    for bad in (np.zeros((0, 2, 3, 1)), np.zeros((2, 3, 1))):
        with pytest.raises(ValueError, match="expected images"):
            tile_images(bad)


def test_bad_arguments(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="rgb_array.*None"):
        VideoRecorder(serial(), tmp_path)
    for bad in ({"every": 0}, {"length": 0}, {"frames_per_second": 0}):
        with pytest.raises(ValueError, match="positive"):
            VideoRecorder(serial(MAKE), tmp_path, **bad)
    for slots in ([], [2]):
        with pytest.raises(ValueError, match="expected slots of 2"):
            VideoRecorder(serial(MAKE), tmp_path, slots=slots)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match="opencv-python-headless"):
        VideoRecorder(serial(MAKE), tmp_path)

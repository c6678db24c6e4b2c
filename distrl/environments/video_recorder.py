"""Videos of what the environments render."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.core.errors import ConfigError
from distrl.core.specs import Nest
from distrl.environments.vector_environment import (
    Info,
    VectorEnvironment,
    VectorStep,
)
from distrl.environments.vector_wrapper import VectorWrapper


class VideoRecorder(VectorWrapper):
    """Writes `folder/step-<vector steps>.mp4`: all slots' frames side by side.

    A video begins at the first reset and behind every step whose number is divisible by
    `every`, unless one is being made; it has its first frame and those of the `length`
    steps behind it. Frames are rendered only for videos. Closing ends the last one.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        folder: str,
        every: int = 10_000,
        length: int = 500,
        slots: Sequence[int] | None = None,
        frames_per_second: float = 30.0,
    ):
        """Makes the folder.

        Args:
          environment: made with `render_mode="rgb_array"`.
          folder: of the videos.
          every: vector steps from the start of one video to the next.
          length: vector steps in a video.
          slots: which environments to show; None for all.
          frames_per_second: of playing.

        Raises ConfigError unless frames are rendered and OpenCV is installed,
        ValueError for other bad arguments.
        """
        super().__init__(environment)
        if environment.render_mode != "rgb_array":
            raise ConfigError(
                "videos need environments with render_mode='rgb_array', not "
                f"{environment.render_mode!r}"
            )
        if min(every, length) < 1 or frames_per_second <= 0:
            raise ValueError(
                "expected positive every, length and frames_per_second, got "
                f"{every}, {length}, {frames_per_second}"
            )
        self._slots = list(range(self.num_envs) if slots is None else slots)
        if not self._slots or not set(self._slots) <= set(range(self.num_envs)):
            raise ValueError(f"expected slots of {self.num_envs}, got {slots}")
        self._cv2 = _opencv()
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._every, self._length, self._rate = every, length, frames_per_second
        self._num_steps = 0
        self._video: _Video | None = None

    def _first(
        self, observation: Nest, info: Info, begins: np.ndarray
    ) -> tuple[Nest, Info]:
        self._record()
        return observation, info

    def _next(self, step: VectorStep) -> VectorStep:
        self._num_steps += 1
        self._record()
        return step

    def _record(self) -> None:
        """Takes a frame if it belongs to a video."""
        if self._video is None:
            if self._num_steps % self._every:
                return
            self._video = _Video(
                self._cv2, self._folder / f"step-{self._num_steps:09}.mp4", self._rate
            )
            self._end = self._num_steps + self._length
        frames = self.environment.render()
        self._video.write(tile_images(frames[self._slots]))
        if self._num_steps >= self._end:
            self._finish()

    def _finish(self) -> None:
        if self._video is not None:
            video, self._video = self._video, None
            video.close()

    def _close(self) -> None:
        try:
            self._finish()
        finally:
            super()._close()


class _Video:
    """An mp4 file that grows by frames uint8 [H, W, 3], all of one size."""

    def __init__(self, cv2: Any, path: pathlib.Path, frames_per_second: float):
        self._cv2, self._path, self._rate = cv2, path, frames_per_second
        self._writer: Any = None
        self._shape: tuple[int, ...] = ()

    def write(self, frame: np.ndarray) -> None:
        if self._writer is None:
            self._open(frame.shape)
        if frame.shape != self._shape:
            raise ValueError(f"{self._path}: expected {self._shape}, got {frame.shape}")
        self._writer.write(np.ascontiguousarray(frame[:, :, ::-1]))  # blue comes first

    def _open(self, shape: tuple[int, ...]) -> None:
        code = self._cv2.VideoWriter.fourcc(*"mp4v")
        size = (shape[1], shape[0])
        self._writer = self._cv2.VideoWriter(str(self._path), code, self._rate, size)
        self._shape = shape
        if not self._writer.isOpened():
            raise OSError(f"cannot write a video of {size} pixels to {self._path}")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()


def tile_images(images: np.ndarray) -> np.ndarray:
    """One image `[H h, W w, C]` of N images `[N, h, w, C]`, row by row.

    H = ceil(sqrt(N)) and W = ceil(N / H); missing ones are zeros. Raises ValueError
    for another number of axes or no image.
    """
    if images.ndim != 4 or not len(images):
        raise ValueError(f"expected images [N, h, w, C], got {images.shape}")
    number, height, width, channels = images.shape
    rows = math.ceil(math.sqrt(number))
    columns = math.ceil(number / rows)
    missing = np.zeros((rows * columns - number, height, width, channels), images.dtype)
    grid = np.concatenate([images, missing])
    grid = grid.reshape(rows, columns, height, width, channels)
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ConfigError(
            "videos need OpenCV: pip install opencv-python-headless"
        ) from error
    return cv2

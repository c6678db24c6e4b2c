"""What the machinery between samples and updates asks of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from distrl.core.specs import Nest


class Trainer(Protocol):
    """Updates of one model.

        loaded = trainer.load(batch)
        for _ in range(num_passes):
            metrics = trainer.train(loaded)
            trained_rows += trainer.rows(loaded)

    `load` may run in several threads at once, also while `train` runs; the other calls
    come one at a time. A batch is a nest of arrays with its rows on the first axis, not
    to be written to: it may be trained on again. Several loaded batches exist side by
    side.
    """

    def load(self, batch: Nest) -> Any:
        """The batch where training wants it, such as split over towers."""

    def train(self, loaded: Any) -> Mapping[str, float]:
        """One update; its metrics."""

    def rows(self, loaded: Any) -> int:
        """The rows that `train` really uses."""

    def parameters(self) -> list[np.ndarray]:
        """The parameters of now. Never called while `train` runs."""


class Parameters(NamedTuple):
    """Parameters as they were between two updates."""

    version: int  # updates before them
    arrays: list[np.ndarray]  # read-only

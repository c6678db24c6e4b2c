"""Numbers as lines of JSON, for programs that read them later."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from distrl.metrics.appended_file import AppendedFile


class JsonLinesWriter:
    """Appends a dict a line to a file; each line is in the file when `write` returns,
    unless the disk is slow.

    NumPy values are written as numbers and lists; NaN and infinities, which JSON lacks,
    as null. A disk that fails must neither end nor hold up a run: see `AppendedFile`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._file = AppendedFile(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Raises TypeError for a value that JSON cannot carry."""
        line = json.dumps(_plain(values), allow_nan=False)
        self._file.append(line.encode() + b"\n")

    def close(self) -> None:
        """May be called again; `write` does nothing then."""
        self._file.close()


def _plain(value: Any) -> Any:
    """The value in types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Numbers as lines of JSON, for programs that read them later."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np


class JsonLinesWriter:
    """Appends a dict a line to a file; each line is in the file when `write` returns.

    NumPy values are written as numbers and lists; NaN and infinities, which JSON lacks,
    as null. A disk that fails must not end a run: the first OSError is logged, all are
    swallowed.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._failed = False
        self._file: TextIO | None = None
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            self._log_once(error)

    def write(self, values: Mapping[str, Any]) -> None:
        """Raises TypeError for a value that JSON cannot carry."""
        line = json.dumps(_plain(values), allow_nan=False)
        if self._file is None:
            return
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            self._log_once(error)

    def close(self) -> None:
        """May be called again."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._log_once(error)

    def _log_once(self, error: OSError) -> None:
        if not self._failed:
            logging.error("metrics are lost, cannot write %s: %s", self._path, error)
        self._failed = True


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

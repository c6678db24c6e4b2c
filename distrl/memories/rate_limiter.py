"""How often a stored row may be sampled, on average."""

from __future__ import annotations

from collections.abc import Mapping


class RateLimiter:
    """Holds inserting and sampling together, by counting rows.

        error = samples_per_insert · (inserted − min_size_to_sample) − sampled

    stays within ± `tolerance` (in samples): whoever would leave that band has to wait
    for the other side. Below `min_size_to_sample` rows only inserts are allowed.
    `samples_per_insert` None: no limit but the minimum. Not safe for threads.
    """

    def __init__(
        self,
        samples_per_insert: float | None,
        min_size_to_sample: int,
        tolerance: float,
    ):
        if samples_per_insert is not None and not 0 < samples_per_insert < float("inf"):
            raise ValueError(
                f"samples_per_insert must be > 0, got {samples_per_insert}"
            )
        if min_size_to_sample < 1:
            raise ValueError(
                f"min_size_to_sample must be at least 1, got {min_size_to_sample}"
            )
        if not tolerance >= 0:
            raise ValueError(f"tolerance must be at least 0, got {tolerance}")
        self.inserted = 0
        self.sampled = 0
        self._samples_per_insert = samples_per_insert
        self._min_size = min_size_to_sample
        self._tolerance = tolerance
        self._open = False

    def check(self, largest_block_rows: int, bundle_rows: int) -> None:
        """Raises ValueError when the two sides could wait for each other for ever.

        The band, 2 · tolerance, must have room for the largest block that is inserted
        at once and the largest bundle that is sampled at once.
        """
        if self._samples_per_insert is None:
            return
        needed = self._samples_per_insert * largest_block_rows + bundle_rows
        if 2 * self._tolerance < needed:
            raise ValueError(
                f"tolerance {self._tolerance} is too small: twice that must be at "
                f"least {needed} = {self._samples_per_insert} samples an insert x "
                f"{largest_block_rows} rows a block + {bundle_rows} rows a bundle"
            )

    def can_insert(self, rows: int) -> bool:
        """Whether `rows` may be inserted now."""
        if self._open or self.inserted < self._min_size:
            return True
        return self._error(rows, 0) <= self._tolerance

    def can_sample(self, rows: int) -> bool:
        """Whether `rows` may be sampled now."""
        if self.inserted < self._min_size:
            return False
        return self._error(0, rows) >= -self._tolerance

    def insert(self, rows: int) -> None:
        """Counts rows that have been inserted."""
        self.inserted += _counted(rows)

    def sample(self, rows: int) -> None:
        """Counts rows that have been sampled."""
        self.sampled += _counted(rows)

    def open(self) -> None:
        """Allows all inserts from now on: a run that ends takes in what is left."""
        self._open = True

    @property
    def ratio(self) -> float:
        """Samples per insert so far, counted from the minimum size."""
        return self.sampled / max(1, self.inserted - self._min_size)

    def state(self) -> dict[str, int]:
        return {"inserted": self.inserted, "sampled": self.sampled}

    def restore(self, state: Mapping[str, int]) -> None:
        """Goes on with these counts. Raises ValueError, and changes nothing, for one
        that is missing or < 0."""
        counts = [state.get(name) for name in ("inserted", "sampled")]
        if any(count is None or count < 0 for count in counts):
            raise ValueError(f"expected inserted and sampled >= 0, got {state}")
        self.inserted, self.sampled = (int(count or 0) for count in counts)

    def _error(self, more_inserted: int, more_sampled: int) -> float:
        """Samples that are owed, after these; negative when too many were drawn."""
        if self._samples_per_insert is None:
            return 0.0
        inserted = self.inserted + more_inserted - self._min_size
        return self._samples_per_insert * inserted - self.sampled - more_sampled


def _counted(rows: int) -> int:
    if rows < 0:
        raise ValueError(f"counts only grow, got {rows} rows")
    return rows

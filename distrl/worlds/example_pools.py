"""The examples of an epoch that workers are lent, so that each is played once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from distrl.worlds.example_index import ExampleIndex, IndexSettings

Numbers = Mapping[str, Sequence[int]]  # of examples, by index
Held = Mapping[str, Counter[int]]  # the same, of what a worker has begun


class ExamplePools:
    """Those of all indices of a world that nobody has.

    What a worker has failed with is a suspect. It is lent once more, alone, so that it
    takes no others with it; when it fails again it is lost.
    """

    def __init__(self, settings: Mapping[str, IndexSettings]):
        self._pools = {name: _Pool(ExampleIndex(*of)) for name, of in settings.items()}

    @property
    def indices(self) -> dict[str, ExampleIndex]:
        return {name: pool.index for name, pool in self._pools.items()}

    @property
    def lost(self) -> dict[str, list[int]]:
        return {
            name: list(pool.lost) for name, pool in self._pools.items() if pool.lost
        }

    @property
    def available(self) -> bool:
        """Whether there is something to lend."""
        return any(pool.suspects or pool.available for pool in self._pools.values())

    def reset(self) -> None:
        """Begins an epoch anew."""
        for pool in self._pools.values():
            pool.reset()

    def lend(self, held: Held, most: int, among: int) -> Numbers:
        """What a worker that holds some examples may have beside them: up to `most` of
        each index, near the end of an epoch no more than the share of one of `among`
        workers."""
        if any(self._pools[name].failed & held[name].keys() for name in held):
            return {}
        if not any(held.values()):
            for name, pool in self._pools.items():
                if pool.suspects:
                    return {name: [pool.suspects.popleft()]}
        return {name: pool.take(most, among) for name, pool in self._pools.items()}

    def settle(self, unused: Numbers, finished: Numbers) -> None:
        """Takes back what was not begun, and forgets suspicions that were wrong."""
        for name, numbers in unused.items():
            self._pools[name].take_back(numbers)
        for name, numbers in finished.items():
            self._pools[name].failed.difference_update(numbers)

    def fail(self, held: Held) -> None:
        """Takes back what a worker had, or may have, begun when it failed."""
        for name, numbers in held.items():
            self._pools[name].fail(numbers.elements())


class _Pool:
    """Of one index."""

    def __init__(self, index: ExampleIndex):
        self.index = index
        self.reset()

    def reset(self) -> None:
        self.index.reset()
        self.returned: deque[int] = deque()  # to be lent before others
        self.failed: set[int] = set()  # with one worker, and not played since
        self.suspects: deque[int] = deque()  # those of them that nobody has
        self.lost: list[int] = []

    @property
    def available(self) -> bool:
        return bool(self.returned) or self.index.available

    def take(self, most: int, among: int) -> list[int]:
        settings = self.index.settings
        if settings.size is not None and not settings.repeats:
            left = settings.size - self.index.taken + len(self.returned)
            most = min(most, -(-left // among))
        numbers: list[int] = []
        while len(numbers) < most:
            number = self.returned.popleft() if self.returned else self.index.take()
            if number is None:
                break
            numbers.append(number)
        return numbers

    def take_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            (self.suspects if number in self.failed else self.returned).append(number)

    def fail(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number in self.failed:
                self.failed.remove(number)
                self.lost.append(number)
            else:
                self.failed.add(number)
                self.suspects.append(number)

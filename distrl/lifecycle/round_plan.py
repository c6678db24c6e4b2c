"""The plan of a round of a synchronous agent, as it stands on ps 0."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from distrl.cluster.channel import Address
from distrl.cluster.parameter_store import ParameterStore
from distrl.cluster.wakeups import Wakeups


class Share(NamedTuple):
    """One actor's part of a round."""

    incarnation: int  # of the actor: a restarted one is not a member
    memory: int  # index of the one that owns the share


@dataclasses.dataclass(frozen=True)
class RoundPlan:
    """Who collects what under which parameters. The plan is the truth: tokens only
    say that there is a new one."""

    round: int  # 0, 1, …; a round that is done again gets a new number
    version: int  # of the parameters that every member acts with
    shares: Mapping[int, Share]  # by actor index
    last: bool = False  # no more rounds: actors leave

    def of_memory(self, index: int) -> dict[int, int]:
        """Incarnations of the actors whose shares this memory owns."""
        return {
            actor: share.incarnation
            for actor, share in self.shares.items()
            if share.memory == index
        }

    @property
    def memories(self) -> set[int]:
        """Those that own a share."""
        return {share.memory for share in self.shares.values()}

    def encode(self) -> np.ndarray:
        """uint8 bytes."""
        content = dataclasses.asdict(self) | {"shares": list(self.shares.items())}
        return np.frombuffer(json.dumps(content).encode(), np.uint8)

    @staticmethod
    def decode(data: np.ndarray) -> RoundPlan:
        content = json.loads(data.tobytes())
        shares = {int(a): Share(*map(int, s)) for a, s in content.pop("shares")}
        return RoundPlan(**content, shares=shares)


class RoundBoard:
    """Where the plan of a run stands, and the wake-ups of those who follow it."""

    def __init__(self, run_id: str, address: Address):
        name = f"round_plan/{run_id}"
        self._store = ParameterStore(name, [address], int(run_id, 16))
        self._run_id, self._address = run_id, address
        self._tokens: dict[str, Wakeups] = {}

    def write(self, plan: RoundPlan) -> None:
        """Puts up a plan; its number must be above that of the one before."""
        self._store.write(plan.round, plan.encode())

    def number(self) -> int:
        """Of the newest plan, -1 when there is none."""
        return self._store.version()

    def read(self) -> RoundPlan | None:
        found = self._store.read()
        return None if found is None else RoundPlan.decode(found[1])

    def tokens(self, task: str) -> Wakeups:
        """The wake-ups of a task, such as "actor/3"."""
        if task not in self._tokens:
            name = f"round_tokens/{self._run_id}/{task}"
            self._tokens[task] = Wakeups(name, self._address)
        return self._tokens[task]

    def close(self) -> None:
        self._store.close()
        for tokens in self._tokens.values():
            tokens.close()

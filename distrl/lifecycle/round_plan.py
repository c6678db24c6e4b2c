"""The plan of a round of a synchronous agent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import NamedTuple


class Share(NamedTuple):
    """One actor's part of a round."""

    incarnation: int  # of the actor: a restarted one is not a member
    memory: int  # index of the one that owns the share


@dataclasses.dataclass(frozen=True)
class RoundPlan:
    """Who collects what under which parameters. The plan is the truth: tokens only
    say that there is a new one.

    `hosts` are the incarnations of the memories (by index) that own shares, `learner`
    is that of the learner: what belongs to the round must not go to an older one, to
    which a connection may still seem to be open.
    """

    round: int  # 0, 1, …; a round that is done again gets a new number
    version: int  # of the parameters that every member acts with
    shares: Mapping[int, Share]  # by actor index
    last: bool = False  # no more rounds: actors leave
    hosts: Mapping[int, int] = dataclasses.field(default_factory=dict)
    learner: int = 0

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

    def encode(self) -> bytes:
        lists = {"shares": list(self.shares.items()), "hosts": list(self.hosts.items())}
        return json.dumps(dataclasses.asdict(self) | lists).encode()

    @staticmethod
    def decode(data: bytes) -> RoundPlan:
        content = json.loads(data)
        shares = {int(a): Share(*map(int, s)) for a, s in content.pop("shares")}
        hosts = {int(memory): int(host) for memory, host in content.pop("hosts")}
        return RoundPlan(**content, shares=shares, hosts=hosts)

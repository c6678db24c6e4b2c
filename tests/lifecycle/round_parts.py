"""A server for plans and parameters, and runs that do not meet on it."""

import itertools

import numpy as np
from addresses import unused_address

from distrl.cluster import sessions
from distrl.cluster.channel import Address
from distrl.cluster.parameter_store import ParameterStore
from distrl.lifecycle.round_board import RoundBoard, RoundReader
from distrl.lifecycle.round_plan import RoundPlan, Share

_numbers = itertools.count(0xABC)


def start_ps(index: int = 0) -> Address:
    """A ps; its server ends with the process."""
    address = Address("ps", index, unused_address())
    sessions.start_server(address.job, address.index, address.host)
    return address


class RunOnPs:
    """The plans and parameters of one run; whatever is opened here is closed."""

    def __init__(self, address: Address, *others: Address):
        self.address, self.run_id = address, f"{next(_numbers):x}"
        self.addresses = [address, *others]
        self.parameters = f"parameters/{self.run_id}"
        self._opened: list = []

    def board(self) -> RoundBoard:
        return self._keep(RoundBoard(self.run_id, self.address, self.parameters))

    def reader(self, task: str = "actor/0") -> RoundReader:
        return self._keep(RoundReader(self.run_id, self.address, task))

    def store(self) -> ParameterStore:
        return self._keep(
            ParameterStore(self.parameters, self.addresses, int(self.run_id, 16))
        )

    def _keep(self, made):
        self._opened.append(made)
        return made

    def close(self) -> None:
        for made in self._opened:
            made.close()


def plan(round, version=0, shares=None, last=False) -> RoundPlan:
    return RoundPlan(round, version, shares or {0: Share(100, 0)}, last)


def parameters(version) -> np.ndarray:
    """Bytes that tell the version."""
    return np.full(1000, version, np.uint8)

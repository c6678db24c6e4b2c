"""Servers in this process and in children, and channels on them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from addresses import unused_address

from distrl.cluster import sessions
from distrl.cluster.channel import Address, ChannelClient, ChannelOwner
from distrl.cluster.messages import DATA, ChannelSpec, Header, Producer
from distrl.cluster.proxy_receiver import ProxyReceiver
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.cluster.spec import JOBS
from distrl.core.counters import Counters
from distrl.core.specs import ArraySpec

HERE = Path(__file__).parent
_numbers = itertools.count()
RUN = "run1"


@pytest.fixture(scope="session")
def servers() -> list[tuple[Address, str]]:
    """Two servers of this process, with their targets."""
    found = []
    for index in range(2):
        address = Address("ps", index, unused_address())
        server = sessions.start_server(address.job, index, address.host)
        found.append((address, server.target))
    return found


class Bench:
    """One channel of int64 values; whatever is opened here is ended afterwards."""

    def __init__(self, address: Address, target: str):
        self.address, self.target = address, target
        self.sent, self.received = Counters(), Counters()
        self.name = f"channel{next(_numbers)}"
        self.news = threading.Event()  # at the receiver
        self._senders: list[ProxySender] = []
        self._receivers: list[ProxyReceiver] = []
        self._clients: list[ChannelClient] = []

    def spec(self, capacity: int = 4, record: Any = None) -> ChannelSpec:
        return ChannelSpec(self.name, record or ArraySpec((), "int64"), capacity)

    def owner(
        self,
        capacity: int = 4,
        incarnation: int = 1,
        spec: ChannelSpec | None = None,
        remote: bool = False,
    ) -> ChannelOwner:
        """With `remote`, as of a task that has no server."""
        spec = spec or self.spec(capacity)
        target = None if remote else self.target
        return ChannelOwner(spec, self.address, target, RUN, incarnation)

    def receiver(self, capacity: int = 4, local: int = 4) -> ProxyReceiver:
        owner = self.owner(capacity)
        receiver = ProxyReceiver(owner, self.received, local, self.news.set)
        self._receivers.append(receiver)
        return receiver

    def sender(self, task: int = 0, spec: Any = None, **settings: Any) -> ProxySender:
        sender = ProxySender(
            spec or self.spec(),
            self.address,
            RUN,
            Producer("actor", task, 1),
            self.sent,
            SenderSettings(**{"max_message_bytes": 0, **settings}),
        )
        self._senders.append(sender)
        return sender

    def client(self, spec: Any = None, run_id: str | None = RUN, timeout: float = 10.0):
        client = ChannelClient(spec or self.spec(), self.address, run_id, timeout)
        self._clients.append(client)
        return client

    def wait_until(self, predicate: Any) -> None:
        """Looks whenever the receiver has news."""
        while not predicate():
            assert self.news.wait(20), "no news"
            self.news.clear()

    def books(self) -> dict[str, float]:
        """Rows sent, received, lost and seen twice. What was given up without knowing
        is lost unless a receiver has seen it."""
        names = ("sent", "received", "lost", "duplicates")
        counters = (self.sent, self.received)
        books = {
            name: sum(c.get(f"{name}/{self.name}") for c in counters) for name in names
        }
        tried = [rows for s in self._senders for rows in s.rows_tried().values()]
        seen = [rows for r in self._receivers for rows in r.rows_seen().values()]
        missing = sum(rows for rows, _ in tried) - sum(seen)
        books["lost"] += min(sum(unsure for _, unsure in tried), max(0, missing))
        return books

    def close(self) -> None:
        for sender in self._senders:
            sender.abandon()
            sender.wait(10)
        for receiver in self._receivers:
            receiver.close()
            receiver._thread.stop()
        for client in self._clients:
            client.close()


@pytest.fixture
def bench(servers) -> Any:
    bench = Bench(*servers[0])
    yield bench
    bench.close()


def header(
    sequence: int, rows: int, total: int, task: int = 0, incarnation: int = 1
) -> Header:
    """Of a message that actor `task` sends."""
    job = JOBS.index("actor")
    return Header(DATA, job, task, incarnation, sequence, rows, total, -1, -1)


@pytest.fixture
def make_message() -> Any:
    """The components of a message of `rows` zeros, with any header one likes."""

    def make(sequence: int, rows: int, total: int, **producer: int) -> list[np.ndarray]:
        numbers = np.asarray(header(sequence, rows, total, **producer), np.int64)
        return [numbers, np.zeros(rows, np.int64)]

    return make


class Child:
    """A `serving_child.py`."""

    def __init__(self, host: str, incarnation: int):
        root = str(HERE.parents[1])
        self.process = subprocess.Popen(
            [sys.executable, HERE / "serving_child.py", host, str(incarnation)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            env=os.environ | {"PYTHONPATH": root},
        )

    def serve(self) -> None:
        """Lets it open its server, and waits for that."""
        assert self.line() == "loaded"
        self.process.stdin.write("go\n")
        assert self.line() == "serving"

    def line(self) -> str:
        """What it prints next; '' at its end."""
        return self.process.stdout.readline().strip()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> list[str]:
        """Ends it at once; the rest of what it printed."""
        self.signal(signal.SIGKILL)
        rest = self.process.stdout.read().split("\n")
        self.process.wait()
        return [line for line in rest if line]


@pytest.fixture(scope="module")
def start_child() -> Any:
    """Starts children that are gone when the module's tests are."""
    children: list[Child] = []

    def start(host: str, incarnation: int) -> Child:
        children.append(Child(host, incarnation))
        return children[-1]

    try:
        yield start
    finally:
        for child in children:
            child.process.kill()
            child.process.wait()
            child.process.stdin.close()
            child.process.stdout.close()

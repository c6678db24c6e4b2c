"""Servers of this process, which serve one test after the other.

TensorFlow ends a server with its process, not before: each test's own would be about 90
threads and 40 MB that stay.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import tensorflow.compat.v1 as tf
from addresses import unused_address

from distrl.cluster import sessions

_start_server = sessions.start_server
_servers: dict[str, tuple[str, int, tf.distribute.Server]] = {}  # by address
_spare: dict[tuple[str, int], list[str]] = defaultdict(list)


class RentedServers:
    """The servers of one test, to be given back when it is over.

    `start` stands in for `sessions.start_server`, and is the same but for addresses of
    servers that are there: the first to start one of those gets it.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._rented: dict[str, bool] = {}  # whether it was started, by address

    def address(self, job: str, index: int) -> str:
        """Where this task of the test is to listen."""
        spare = _spare[job, index]
        address = spare.pop() if spare else unused_address()
        self._rented[address] = False
        return address

    def start(self, job: str, index: int, address: str) -> tf.distribute.Server:
        if self._rented.get(address) is False and address in _servers:
            server = _servers[address][2]
        else:
            server = _start_server(job, index, address)
            _servers[address] = (job, index, server)
        self._rented[address] = True
        return server

    def give_back(self) -> None:
        """Empties them for the next test, unless a thread of this one is still there,
        which might go on to use them."""
        if set(threading.enumerate()) - self._before:
            return
        for address in self._rented:
            if address in _servers:
                job, index, server = _servers[address]
                tf.Session.reset(server.target)
                _spare[job, index].append(address)

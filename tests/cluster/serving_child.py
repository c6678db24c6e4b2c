"""A task in a process of its own: `serving_child.py HOST:PORT INCARNATION`.

It loads, waits for a line on stdin, opens CHANNEL on its server, and prints the values
of each message that it has received and counted. It ends with its stdin.
"""

from __future__ import annotations

import os
import sys
import threading

from distrl.cluster import sessions
from distrl.cluster.channel import Address, ChannelOwner
from distrl.cluster.messages import ChannelSpec
from distrl.cluster.proxy_receiver import ProxyReceiver
from distrl.core.counters import Counters
from distrl.core.specs import ArraySpec

CHANNEL = ChannelSpec("values", ArraySpec((), "int64"), capacity=4)
RUN = "run1"


def exit_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    address = Address("memory", 0, sys.argv[1])
    print("loaded", flush=True)
    sys.stdin.readline()
    threading.Thread(target=exit_with_stdin, daemon=True).start()
    target = sessions.start_server(address.job, address.index, address.host).target
    owner = ChannelOwner(CHANNEL, address, target, RUN, int(sys.argv[2]))
    receiver = ProxyReceiver(owner, Counters(), capacity=8)
    print("serving", flush=True)
    while True:
        message = receiver.get(timeout=60)
        if message is not None:
            print(*message.record.tolist(), flush=True)


if __name__ == "__main__":
    main()

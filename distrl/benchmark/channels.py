"""What sending costs: `python -m distrl.benchmark.channels [--secs=5]`.

An owner process (server and ProxyReceiver) and a client process (ProxySender without
joining of messages), for messages of 4 KB, 256 KB and 4 MB; and beside it the same
messages through a `multiprocessing.Queue` between the same two processes, which is what
one would use on one machine instead. Medians of the repeats:

  mb_per_sec, messages_per_sec  of wall time, as the owner sees them
  client_cpu_ms, owner_cpu_ms   CPU ms a message in each process, all threads
  cpu_ms                        both together
  cpu_ratio                     cpu_ms over that of the multiprocessing.Queue
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import portpicker

from distrl.benchmark.marks import Mark, rates, receive_all, send_all
from distrl.benchmark.measuring import (
    Record,
    check_repeats,
    end_on_sigterm,
    print_records,
    rounded,
)
from distrl.core.counters import Counters

if TYPE_CHECKING:
    from distrl.cluster.channel import Address
    from distrl.cluster.messages import ChannelSpec
    from distrl.cluster.proxy_receiver import ProxyReceiver
    from distrl.cluster.proxy_sender import ProxySender

SIZES = (4 << 10, 256 << 10, 4 << 20)  # bytes
CHANNEL, QUEUE = "channel", "multiprocessing.Queue"
RUN_ID = "benchmark"

_CAPACITY = 4  # messages in the channel's queue
_LOCAL_CAPACITY = 2  # messages at either end of it
_STUCK_SECS = 60.0  # without a message until the measurement is given up


class Plan(NamedTuple):
    """What both processes know."""

    port: int
    sizes: tuple[int, ...]
    secs: float  # of one transport and size
    repeats: int


# The processes.


def channel_spec(size: int) -> ChannelSpec:
    from distrl.cluster.messages import ChannelSpec
    from distrl.core.specs import ArraySpec

    return ChannelSpec(f"bytes_{size}", ArraySpec((), "uint8"), _CAPACITY)


def address_of(plan: Plan) -> Address:
    from distrl.cluster.channel import Address

    return Address("memory", 0, f"127.0.0.1:{plan.port}")


def own(results: Connection, plan: Plan, queues: Sequence[Any]) -> None:
    """The owner process; sends its marks for each size, channel first."""
    from distrl.cluster import sessions
    from distrl.cluster.channel import ChannelOwner
    from distrl.cluster.proxy_receiver import ProxyReceiver

    address = address_of(plan)
    target = sessions.start_server(address.job, address.index, address.host).target
    receivers = [
        ProxyReceiver(
            ChannelOwner(channel_spec(size), address, target, RUN_ID, time.time_ns()),
            Counters(),
            _LOCAL_CAPACITY,
        )
        for size in plan.sizes
    ]
    for receiver, queue in zip(receivers, queues, strict=True):
        results.send(receive_all(partial(get_message, receiver), plan.repeats))
        results.send(receive_all(partial(get_item, queue), plan.repeats))
    results.recv()  # the client has closed its sessions
    for receiver in receivers:
        receiver.stop()


def get_message(receiver: ProxyReceiver) -> int:
    """The repeat of the next message. Raises TimeoutError when none comes."""
    message = receiver.get(_STUCK_SECS)
    if message is None:
        raise TimeoutError(f"no message within {_STUCK_SECS} s")
    return message.header.version


def get_item(queue: Any) -> int:
    repeat, _ = queue.get(timeout=_STUCK_SECS)
    return repeat


def use(results: Connection, plan: Plan, queues: Sequence[Any]) -> None:
    """The client process; sends its marks for each size, channel first."""
    from distrl.cluster.messages import Producer
    from distrl.cluster.proxy_sender import ProxySender, SenderSettings

    settings = SenderSettings(capacity=_LOCAL_CAPACITY, max_message_bytes=0)
    producer = Producer("actor", 0, time.time_ns())
    for size, queue in zip(plan.sizes, queues, strict=True):
        data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        sender = ProxySender(
            channel_spec(size), address_of(plan), RUN_ID, producer, Counters(), settings
        )
        put = partial(put_message, sender, data)
        results.send(send_all(put, plan.secs, plan.repeats))
        sender.end()
        sender.join(_STUCK_SECS)
        put = partial(put_item, queue, data)
        results.send(send_all(put, plan.secs, plan.repeats))
    results.recv()


def put_message(sender: ProxySender, data: np.ndarray, repeat: int) -> None:
    """Raises TimeoutError when there is no room for long."""
    if not sender.put(data, len(data), _STUCK_SECS, version=repeat):
        raise TimeoutError(f"no room within {_STUCK_SECS} s")


def put_item(queue: Any, data: np.ndarray, repeat: int) -> None:
    queue.put((repeat, data), timeout=_STUCK_SECS)


@contextlib.contextmanager
def running(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """A process around `target(connection, *arguments)`, and our end of it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
        ours.send(None)
        process.join(_STUCK_SECS)
    finally:
        ours.close()
        process.kill()
        process.join()


def collected(
    count: int, owner: Connection, client: Connection
) -> list[tuple[list[Mark], list[Mark]]]:
    """`count` results of either. Raises RuntimeError as soon as one has died."""
    results: dict[Connection, list[list[Mark]]] = {owner: [], client: []}
    while short := [side for side, found in results.items() if len(found) < count]:
        ready = wait(short)
        for side in [side for side in short if side in ready]:
            try:
                results[side].append(side.recv())
            except EOFError:
                raise RuntimeError("a process has died, see its error above") from None
    return list(zip(results[owner], results[client], strict=True))


def measure(secs: float, repeats: int, sizes: Sequence[int] = SIZES) -> list[Record]:
    """A record for each size and transport. Raises RuntimeError when a process dies."""
    check_repeats(secs, repeats)
    port = portpicker.pick_unused_port()
    plan = Plan(port, tuple(sizes), secs, repeats)
    context = multiprocessing.get_context("spawn")
    capacity = _CAPACITY + 2 * _LOCAL_CAPACITY
    queues = [context.Queue(capacity) for _ in sizes]
    with running(own, plan, queues) as owner, running(use, plan, queues) as client:
        pairs = collected(2 * len(plan.sizes), owner, client)
    records: list[Record] = []
    for number, size in enumerate(plan.sizes):
        channel, queue = pairs[2 * number : 2 * number + 2]
        records += compared(size, channel, queue)
    return records


def compared(size: int, *pairs: tuple[list[Mark], list[Mark]]) -> list[Record]:
    """The records of channel and queue, whose marks are `pairs` (owner, client)."""
    records: list[Record] = []
    for transport, (owner, client) in zip((CHANNEL, QUEUE), pairs, strict=True):
        per_sec, owner_cpu = rates(owner)
        _, client_cpu = rates(client)
        records.append(
            {
                "transport": transport,
                "message_bytes": size,
                "mb_per_sec": per_sec * size / 1e6,
                "messages_per_sec": per_sec,
                "client_cpu_ms": client_cpu,
                "owner_cpu_ms": owner_cpu,
                "cpu_ms": client_cpu + owner_cpu,
            }
        )
    base = max(records[1]["cpu_ms"], 1e-9)
    return [rounded(r | {"cpu_ratio": r["cpu_ms"] / base}) for r in records]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--secs", type=float, default=5.0, help="of each size and transport, default 5"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="share --secs; medians are printed"
    )
    flags = parser.parse_args(arguments)
    end_on_sigterm()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would ask a proxy for this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1"]))
    try:
        print_records(measure(flags.secs, flags.repeats))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

"""The thread on ps 0 that keeps the run state and raises `stopping`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address, ChannelOwner, text_variable
from distrl.cluster.proxy_receiver import ProxyReceiver
from distrl.core.counters import Counters
from distrl.core.threads import StoppableThread
from distrl.lifecycle import run_recall
from distrl.lifecycle.heartbeat import (
    BEATS,
    BEATS_RUN,
    DUMP_NAME,
    VIEW_NAME,
    decode,
)
from distrl.lifecycle.published_view import published_view
from distrl.lifecycle.run_state import DONE, STARTING, Beat, RunState
from distrl.lifecycle.signals import Signals

_TICK_SECS = 0.1
_LINGER_SECS = 0.5  # in which the answer to the last beat gets to its task


class StopMonitor:
    """Feeds beats and time to a RunState and publishes its view.

    It is the only one that touches `state`. ps 0 itself is a member like the others;
    its beats do not travel. `report` is called about once a second, in the monitor's
    thread, with the state.
    """

    def __init__(
        self,
        state: RunState,
        address: Address,
        target: str,
        incarnation: int,
        report: Callable[[RunState], None] = lambda state: None,
        totals: Callable[[bool], dict[str, float]] = lambda starting: {},
        signals: Signals | None = None,
    ):
        self._state, self._report, self._read_totals = state, report, totals
        self._signals = signals or Signals()
        self._own = Beat("ps", 0, incarnation, 0)
        owner = ChannelOwner(BEATS, address, target, BEATS_RUN, incarnation)
        self._beats = ProxyReceiver(owner, Counters(), capacity=1024)
        self._publish = _text_writer(VIEW_NAME, address, target)
        self._publish_dump = _text_writer(DUMP_NAME, address, target)
        self.may_leave = threading.Event()
        self.stop_reason = ""
        self._thread = StoppableThread("stop monitor", self._run).start()

    def wait(self, timeout: float) -> bool:
        """Whether every other task has left. Raises what ended the thread."""
        left = self.may_leave.wait(timeout)
        self._thread.check()
        if left and self._state.may_leave:
            time.sleep(_LINGER_SECS)
        return left

    def stop(self, timeout: float) -> None:
        self._thread.stop()
        self._thread.join(timeout)
        self._beats.stop(timeout)

    def _run(self, stopping: threading.Event) -> None:
        reported, phase = 0.0, ""
        try:
            while not stopping.is_set():
                self._take_beats()
                now = time.monotonic()
                self._beat_itself(now)
                self._state.tick(now)
                self.stop_reason = self._state.stop_reason
                if now - reported >= 1.0 or self._state.phase != phase:
                    reported, phase = now, self._state.phase
                    dump = run_recall.dump(self._state, now)
                    self._publish_dump(json.dumps(dump))
                    self._report(self._state)
                self._publish(json.dumps(published_view(self._state, now)))
                if self._state.may_leave:
                    self.may_leave.set()
        finally:
            self._report(self._state)
            self.may_leave.set()  # also on an error: `wait` raises it

    def _take_beats(self) -> None:
        message = self._beats.get(timeout=_TICK_SECS)
        while message is not None:
            self._state.receive(decode(message.record), time.monotonic())
            message = self._beats.get()

    def _beat_itself(self, now: float) -> None:
        own = self._own
        own.number += 1
        own.progress = own.number
        own.totals = self._read_totals(self._state.phase == STARTING)
        own.config = {} if own.number > 1 else self._state.config
        if self._signals.received:
            own.stop_request = f"{self._signals.received} at ps/0"
        if self.may_leave.is_set():
            own.state = DONE
        self._state.receive(own, now)


def _text_writer(name: str, address: Address, target: str) -> Callable[[str], Any]:
    graph = tf.Graph()
    with graph.as_default(), tf.device(address.device):
        text = tf.placeholder(tf.string, [])
        assign = tf.raw_ops.AssignVariableOp(resource=text_variable(name), value=text)
    graph.finalize()
    session = sessions.ServerSession(target, graph=graph)
    return session.make_callable(assign, [text])

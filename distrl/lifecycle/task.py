"""One process of a run: who it is, what it counts, how it hears that the run ends."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from distrl.cluster import open_graphs, sessions
from distrl.cluster.channel import Address, ChannelOwner
from distrl.cluster.messages import ChannelSpec, Producer
from distrl.cluster.proxy_receiver import ProxyReceiver
from distrl.cluster.proxy_sender import ProxySender, SenderSettings
from distrl.cluster.row_trace import RowTrace
from distrl.cluster.spec import ELASTIC_JOBS, SERVING_JOBS, ClusterSpec
from distrl.core import heap
from distrl.core.counters import Counters
from distrl.core.errors import (
    ChannelClosed,
    ConfigError,
    PeerUnreachable,
    RunEnding,
    RunFailed,
)
from distrl.core.specs import Nest
from distrl.core.threads import Deadline
from distrl.lifecycle import run_state
from distrl.lifecycle.config_difference import SPEC
from distrl.lifecycle.failure_policy import RESTART
from distrl.lifecycle.heartbeat import Heartbeat
from distrl.lifecycle.settings import Run
from distrl.lifecycle.signals import Signals
from distrl.lifecycle.view import View
from distrl.metrics.json_lines import JsonLinesWriter
from distrl.metrics.timers import WaitTimer, process_cpu_seconds

log = logging.getLogger(__name__)

_GIVE_BACK_SECS = 60.0  # between two times that free memory goes back to the system


class Task:
    """The runtime of one task, whatever its job does.

    `gauges` are the newest values of anything worth showing; they travel with the
    beats. `wakeup` is set whenever one of the task's channels has news.
    """

    def __init__(
        self,
        job: str,
        index: int,
        cluster: ClusterSpec,
        run: Run,
        run_dir: pathlib.Path,
        config: dict[str, str],
        signals: Signals,
        restart: int = 0,
        resume: bool = False,
        incarnation: int = 0,
    ):
        """`restart` counts the starts before this one: it has other random streams.
        `resume` goes on from what an earlier run has left in `run_dir`. `incarnation`
        is larger than those of the starts before; 0: the time in ns, which is that as
        long as the clock does not go back. Raises ConfigError for a task that the
        cluster does not have, and for a trace of rows that cannot be written."""
        cluster.check_task(job, index)
        self.job, self.index, self.cluster = job, index, cluster
        self.run, self.run_dir, self.config = run, run_dir, dict(config)
        self.signals, self.restart, self.resume = signals, restart, resume
        self.timeouts = run.timeouts
        self.producer = Producer(job, index, incarnation or time.time_ns())
        self.counters = Counters()
        self.gauges: dict[str, Any] = {}
        self.timer = WaitTimer()
        self.wakeup = threading.Event()
        self.target = ""
        if job in SERVING_JOBS:
            address = cluster.addresses(job)[index]
            self.target = sessions.start_server(job, index, address).target
        self._heartbeat: Heartbeat | None = None
        self._give_back_due = Deadline(_GIVE_BACK_SECS)
        self._startup_cpu = 0.0
        self._senders: list[ProxySender] = []
        self._receivers: list[ProxyReceiver] = []
        self._trace: RowTrace | None = None
        if run.trace_rows:
            name = f"{job}-{index}-{self.producer.incarnation}.txt"
            try:
                self._trace = RowTrace(run_dir / "rows" / name)
            except OSError as error:
                raise ConfigError(f"Run.trace_rows: {error}") from error
        self._lines: JsonLinesWriter | None = None

    def __str__(self) -> str:
        return str(self.producer)

    def address(self, job: str, index: int) -> Address:
        return Address(job, index, self.cluster.addresses(job)[index])

    def addresses(self, job: str) -> list[Address]:
        hosts = self.cluster.addresses(job)
        return [Address(job, index, host) for index, host in enumerate(hosts)]

    # Being a member of the run.

    def join(self, described: dict[str, str], **words: Any) -> None:
        """Starts the heartbeat and waits until the run has an id (learner 0 brings
        it) or is ending. `described` are spec texts that must agree in all tasks,
        `words` what else the beats say.

        Raises PeerUnreachable naming ps 0 or learner 0, TaskRefused; RunEnding or
        RunFailed when the run ends before it has begun.
        """
        path = self.run_dir / "metrics" / f"{self.job}-{self.index}.jsonl"
        self._lines = JsonLinesWriter(path)
        config = self.config | {SPEC + key: text for key, text in described.items()}
        self._heartbeat = Heartbeat(
            self.address("ps", 0),
            self.producer,
            config,
            self.timeouts,
            self._read,
            self.patience_secs,
            words,
            keeps_dump=(self.job, self.index) == ("learner", 0),
        )
        known = self.heartbeat.wait_for(
            lambda: (
                self._gives_up
                or (self._is_listed and bool(self.view.run_id or self.view.stopping))
            ),
            self.timeouts.startup_secs + self.timeouts.heartbeat_secs,
        )
        if self._gives_up:
            self._say_last(state=run_state.DONE)
            raise RunEnding(f"{self.signals.received} before the run had begun")
        if not known:
            raise PeerUnreachable("nobody gave the run an id: is learner 0 there?")
        self.heartbeat.check()
        if not self.view.run_id:  # it ends before it has begun
            view = self.view
            self.leave()
            raise (RunFailed if view.failed else RunEnding)(view.stop_reason)

    @property
    def patience_secs(self) -> float:
        """How long a ps may be silent: it may have to be started again."""
        restarts = self.run.failures.of("ps").action == RESTART
        timeouts = self.timeouts
        return timeouts.startup_secs if restarts else timeouts.heartbeat_secs

    def wait_until_running(self) -> None:
        """Waits until all listed tasks have joined, or the run is ending."""
        self.heartbeat.wait_for(
            lambda: self.view.phase != run_state.STARTING,
            self.timeouts.startup_secs + self.timeouts.heartbeat_secs,
        )

    @property
    def _gives_up(self) -> bool:
        """Whether a signal came that concerns, or has reached, nobody else."""
        alone = self.job in ELASTIC_JOBS or not self._is_listed
        return bool(self.signals.received) and alone

    @property
    def _is_listed(self) -> bool:
        return self.view.entry(self.producer) is not None

    def _read(self) -> dict[str, Any]:
        """What goes into each beat; called in the heartbeat's thread."""
        if self._give_back_due.passed:
            self._give_back_due = Deadline(_GIVE_BACK_SECS)
            heap.give_back()
        gauges = self.gauges | {
            "wait_fraction": round(self.timer.fraction("wait"), 3),
            "graph_operations": open_graphs.num_operations(),
            "channels": {
                receiver.name: [receiver.size, receiver.capacity]
                for receiver in list(self._receivers)
                if receiver.owner.is_here  # another's is a question over the network
            },
        }
        fields: dict[str, Any] = {"totals": self.totals(), "gauges": gauges}
        if self._lines is not None:
            self._lines.write({"time": time.time(), **fields})
        fields |= {"tried": self._rows_tried(), "seen": self._rows_seen()}
        if self.signals.received and self.job not in ELASTIC_JOBS:
            fields["stop_request"] = f"{self.signals.received} at {self}"
        return fields

    def _rows_tried(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Of each channel, by owner."""
        rows: dict[str, dict[str, tuple[int, int]]] = {}
        for sender in list(self._senders):
            for owner, tried in sender.rows_tried().items():
                rows.setdefault(sender.spec.name, {})[owner] = tried
        return rows

    def _rows_seen(self) -> dict[str, dict[str, int]]:
        """Of each channel, by producer."""
        return {r.name: r.rows_seen() for r in list(self._receivers)}

    def totals(self, starting: bool | None = None) -> dict[str, float]:
        """What this task has counted, and the CPU that it has used, in all and while
        the run was `starting` (as the view says, where this is None)."""
        if starting is None:
            heartbeat = self._heartbeat
            starting = heartbeat is None or heartbeat.view.phase == run_state.STARTING
        cpu = process_cpu_seconds() + self.counters.get("child_cpu_secs")
        if starting:
            self._startup_cpu = cpu
        times = {"cpu_secs": cpu, "startup_cpu_secs": self._startup_cpu}
        return self.counters.snapshot() | times

    @property
    def heartbeat(self) -> Heartbeat:
        if self._heartbeat is None:
            raise RuntimeError(f"{self} has not joined")
        return self._heartbeat

    @property
    def view(self) -> View:
        return self.heartbeat.view

    @property
    def should_stop(self) -> bool:
        """Whether the run is ending, or this actor or evaluator was asked to leave: a
        read of local flags. Raises what `Heartbeat.check` raises once that is so."""
        leaving = self.job in ELASTIC_JOBS and bool(self.signals.received)
        if not (self.heartbeat.should_stop or leaving):
            return False
        self.heartbeat.check()
        return True

    def wait_for_news(self, timeout: float) -> None:
        """Waits until a channel has news, at most `timeout` s."""
        with self.timer.measure("wait"):
            self.wakeup.wait(timeout)
        self.wakeup.clear()

    # Channels.

    def receiver(
        self, spec: ChannelSpec, capacity: int, at: Address | None = None
    ) -> ProxyReceiver:
        """Opens a channel on this task's server, or `at` another's (stop that one
        before the task leaves). Call after `join`."""
        owner = ChannelOwner(
            spec,
            at or self.address(self.job, self.index),
            self.target if at is None else None,
            self.view.run_id,
            self.producer.incarnation,
            owner=str(self),
        )
        receiver = ProxyReceiver(
            owner, self.counters, capacity, self.wakeup.set, self._trace
        )
        self._receivers.append(receiver)
        return receiver

    def sender(
        self, spec: ChannelSpec, to: Address, settings: SenderSettings
    ) -> ProxySender:
        """A sender towards another task. Call after `join`."""
        sender = ProxySender(
            spec,
            to,
            self.view.run_id,
            self.producer,
            self.counters,
            settings,
            self.wakeup.set,
            self._trace,
        )
        self._senders.append(sender)
        return sender

    def peer_is_gone(self, address: Address) -> bool:
        """Whether this task is done, lost or failed, or can no longer come, and no
        other is to take its place."""
        view = self.view
        entry = view.members.get(f"{address.job}/{address.index}")
        if entry is None:
            return view.stopping
        returns = self.run.failures.of(address.job).action == RESTART
        awaited = returns and entry[2] in (run_state.LOST, run_state.FAILED)
        return entry[2] in run_state.GONE and (view.stopping or not awaited)

    # The farewell.

    def drain(
        self,
        receiver: ProxyReceiver,
        job: str,
        take: Callable[[Any], None],
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> None:
        """Reads a channel until END, or the loss, of every member of `job`, then
        closes it and reads what is left. Bounded by `shutdown_secs` without news;
        `meanwhile` is called all along."""
        deadline = Deadline(self.timeouts.shutdown_secs)
        while not deadline.passed and not self._all_ended(receiver, job):
            meanwhile()
            message = receiver.get(timeout=0.05)
            if message is not None:
                take(message)
                deadline = Deadline(self.timeouts.shutdown_secs)
        receiver.close()
        try:
            while not deadline.passed:
                message = receiver.get(timeout=0.05)
                if message is not None:
                    take(message)
        except ChannelClosed:
            return

    def _all_ended(self, receiver: ProxyReceiver, job: str) -> bool:
        self.heartbeat.check()
        return self.view.stopping and all(
            receiver.has_ended(producer)
            or state in run_state.GONE  # what it has delivered is in the queue
            for producer, state in self.view.producers(job).items()
        )

    def hand_over(self, to: ProxySender, record: Nest, rows: int, **tags: int) -> None:
        """Gives a record to a sender (`tags` as in its `put`), waiting for room. What
        it cannot take, because the peer is gone or the run's end takes too long, is
        counted as lost."""
        limit: Deadline | None = None
        with self.timer.measure("wait"):
            while not to.put(record, rows, 0.2, **tags):
                self.heartbeat.progress += 1
                if self.should_stop and limit is None:
                    limit = Deadline(self.timeouts.shutdown_secs)
                late = limit is not None and limit.passed
                if late or self.peer_is_gone(to.address):
                    to.refuse(rows)
                    return

    def end_senders(self, meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Sends END to everybody and waits; peers that are gone are given up.
        `meanwhile` is called all along."""
        deadline = Deadline(self.timeouts.shutdown_secs)
        for sender in self._senders:
            sender.end()
        for sender in self._senders:
            while sender.alive and not deadline.passed:
                if self.peer_is_gone(sender.address):
                    sender.abandon()
                meanwhile()
                sender.wait(0.05)
            sender.join(0.1)

    def leave(self) -> None:
        """Tells ps 0 that this task is done, with its final totals. Raises
        PeerUnreachable when it could not even try to."""
        number = self.heartbeat.say(state=run_state.DONE)
        try:
            self.heartbeat.stop(min(self.patience_secs, self.timeouts.shutdown_secs))
        except PeerUnreachable as error:  # ps 0 may have heard it, and left
            if not self.heartbeat.has_tried(number):
                raise
            log.warning("nobody has confirmed the last beat: %s", error)
        self._close_lines()

    def fail(self, message: str, fatal: bool = False) -> None:
        """Tells ps 0, if it can still hear, that this task has failed; `fatal`: that
        another in its place would, too."""
        self._say_last(state=run_state.FAILED, message=message, fatal=fatal)

    def _say_last(self, **words: Any) -> None:
        if self._heartbeat is not None:
            self._heartbeat.say(**words)
            with contextlib.suppress(Exception):  # the cause is what counts
                self._heartbeat.stop(2.0)
        self._close_lines()

    def _close_lines(self) -> None:
        if self._lines is not None:
            self._lines.close()

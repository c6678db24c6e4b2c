"""A task's side of the run state: beats go to ps 0, the published view comes back."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address, ChannelClient, read_text, text_variable
from distrl.cluster.messages import DATA, ChannelSpec, Producer
from distrl.core.errors import (
    ChannelClosed,
    PeerUnreachable,
)
from distrl.core.specs import ArraySpec
from distrl.core.threads import Deadline, StoppableThread
from distrl.lifecycle import run_state
from distrl.lifecycle.run_state import Beat
from distrl.lifecycle.settings import Timeouts
from distrl.lifecycle.view import NOTHING_YET, View

log = logging.getLogger(__name__)

BEATS = ChannelSpec("beats", ArraySpec((), "uint8"), capacity=1024)
VIEW_NAME = "run_view"
DUMP_NAME = "run_dump"
_DUMP_SECS = 1.0  # between two looks at what ps 0 knows, by who keeps it
_RETRY_SECS = 0.1  # between attempts to reach ps 0
_ATTEMPT_SECS = 5.0  # how long one may take
_NO_WORDS: Mapping[str, Any] = MappingProxyType({})
BEATS_RUN = "run"  # beats are older than the run id that learner 0 brings


def encode(beat: Beat) -> np.ndarray:
    """A beat as uint8 text."""
    return np.frombuffer(json.dumps(dataclasses.asdict(beat)).encode(), np.uint8)


def decode(array: np.ndarray) -> Beat:
    return Beat(**json.loads(np.asarray(array, np.uint8).tobytes()))


class _Link:
    """Sessions to ps 0: one puts beats, one reads the view."""

    def __init__(self, address: Address, timeout: float):
        self._client = ChannelClient(BEATS, address, BEATS_RUN, timeout)
        graph = tf.Graph()
        with graph.as_default(), tf.device(address.device):
            view = read_text(text_variable(VIEW_NAME))
            dump = read_text(text_variable(DUMP_NAME))
        self._session = sessions.open_session(graph, address.host, timeout)
        graph.finalize()
        make = self._session.make_callable
        self._view = make(view, accept_options=True)
        self._dump = make(dump, accept_options=True)

    def put(self, components: list[np.ndarray], timeout: float) -> None:
        self._client.put(components, timeout)

    def read(self, timeout: float) -> View | None:
        """The view; None when ps 0 has not published one yet."""
        content = self._load(self._view, timeout)
        return None if content is None else View(content)

    def read_dump(self, timeout: float) -> dict[str, Any] | None:
        """All that ps 0 knows; None when it has not said so yet."""
        return self._load(self._dump, timeout)

    @staticmethod
    def _load(read: Callable[..., bytes], timeout: float) -> dict[str, Any] | None:
        try:
            return json.loads(read(options=sessions.limited(timeout)))
        except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
            return None
        except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
            raise PeerUnreachable(f"ps/0: {error.message}") from error

    def close(self) -> None:
        self._client.close()
        sessions.close_session(self._session)


class Heartbeat:
    """Beats every `beat_period_secs`, and at once when something changes.

    `read` is called in the heartbeat's thread for each beat and returns fields of Beat.
    """

    def __init__(
        self,
        address: Address,
        producer: Producer,
        config: dict[str, str],
        timeouts: Timeouts,
        read: Callable[[], dict[str, Any]],
        patience_secs: float | None = None,
        words: Mapping[str, Any] = _NO_WORDS,
        keeps_dump: bool = False,
    ):
        """Silence of ps 0 for `patience_secs` (None: `heartbeat_secs`) ends the beats.

        `words` are said from the first beat on. Who `keeps_dump` fills a ps 0 that has
        been started again.
        """
        self._patience = patience_secs or timeouts.heartbeat_secs
        self._keeps_dump, self._next_dump = keeps_dump, Deadline(0.0)
        self._listed = False  # by the newest view, which may be that of a blank ps 0
        self._address, self._producer = address, producer
        self._config, self._timeouts = config, timeouts
        self._read = read
        self._beat = Beat(producer.job, producer.task, producer.incarnation, 0, **words)
        self._changed = threading.Condition()
        # Numbers of beats: to send at once, put or on the way, and put.
        self._wanted, self._tried, self._said = 1, 0, 0
        self._last_words = Deadline(float("inf"))
        self.progress = 0
        self.view = NOTHING_YET
        self.should_stop = False  # read in hot loops
        self._thread = StoppableThread("heartbeat", self._run).start()

    # What the task says.

    def say(self, **changes: Any) -> int:
        """Changes fields of the beat and sends it at once; its number."""
        with self._changed:
            self._beat = dataclasses.replace(self._beat, **changes)
            self._wanted = self._beat.number + 1
            self._changed.notify_all()
            return self._wanted

    def has_tried(self, number: int) -> bool:
        """Whether the beat of this number may have arrived."""
        return self._tried >= number

    def knows(self, number: int) -> bool:
        """Whether the view contains what was said in the beat of this number."""
        entry = self.view.entry(self._producer)
        return entry is not None and entry[1] >= number

    def keeps(self, number: int) -> bool:
        """Whether `dump` contains what was said in the beat of this number."""
        entry = (self.dump or {"members": {}})["members"].get(str(self._producer))
        return entry is not None and entry["number"] >= number

    @property
    def dump(self) -> dict[str, Any] | None:
        """All that ps 0 knew a moment ago, for who keeps it."""
        return self._beat.recall

    # What the task hears.

    def check(self) -> None:
        """Raises TaskRefused when ps 0 refused or fenced this task, and
        PeerUnreachable when it does not answer any more."""
        self._thread.check()
        verdict = self.view.verdict(self._producer)
        if verdict is not None:
            raise verdict

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Waits until `predicate()`, looking at each new view and at least every
        0.1 s; False after `timeout` s. Raises what `check` raises."""
        deadline = Deadline(timeout)
        with self._changed:
            while not predicate():
                self.check()
                if deadline.passed:
                    return False
                self._changed.wait(min(0.1, deadline.remaining))
        return True

    def stop(self, timeout: float = 5.0) -> None:
        """Ends the beats; what was said last goes out first."""
        self._thread.stop()
        with self._changed:
            self._last_words = Deadline(timeout)
            self._changed.notify_all()
        self._thread.join(timeout + _ATTEMPT_SECS + 1.0)

    # The thread.

    def _run(self, stopping: threading.Event) -> None:
        link: _Link | None = None
        try:
            silence = Deadline(self._timeouts.startup_secs)
            while not (stopping.is_set() and self._said >= self._wanted):
                try:
                    if link is None:  # it may be one that does not know this task
                        link = _Link(
                            self._address, min(_ATTEMPT_SECS, silence.remaining)
                        )
                        self._listed = False
                    self._exchange(link)
                    silence = Deadline(self._patience)
                    self._pause(stopping)
                except (PeerUnreachable, TimeoutError, ChannelClosed) as error:
                    if link is not None:
                        link.close()
                        link = None
                    if silence.passed or self._last_words.passed:
                        raise PeerUnreachable(
                            f"{self._address} does not answer: {error}"
                        ) from error
                    with self._changed:
                        self._changed.wait(_RETRY_SECS)
        finally:
            if link is not None:
                link.close()
            with self._changed:
                self.should_stop = True
                self._changed.notify_all()

    def _pause(self, stopping: threading.Event) -> None:
        """Until the next beat is due, or wanted at once."""
        fast = self.view.phase != run_state.RUNNING or self.view.near_end
        period = self._timeouts.beat_secs(len(self.view.members), fast)
        with self._changed:
            self._changed.wait_for(
                lambda: self._wanted > self._said or stopping.is_set(), period
            )

    def _exchange(self, link: _Link) -> None:
        with self._changed:
            fields = self._read()
            number = self._beat.number + 1
            self._beat = dataclasses.replace(
                self._beat, number=number, progress=self.progress, **fields
            )
            beat = self._beat
            if not self._listed:
                beat = dataclasses.replace(beat, config=self._config)
            elif beat.recall is not None:
                beat = dataclasses.replace(beat, recall=None)
        header = self._producer.header(DATA, number, rows=1, total_rows=number)
        components = BEATS.pack(header, encode(beat))
        timeout = min(_ATTEMPT_SECS, self._timeouts.heartbeat_secs / 2)
        self._tried = number
        link.put(components, timeout)
        self._said = number
        view = link.read(timeout)
        if view is None:
            return
        self._listed = view.entry(self._producer) is not None
        due = self._next_dump.passed or view.stop_is_due
        if self._listed and self._keeps_dump and due:
            self._next_dump = Deadline(_DUMP_SECS)
            self._keep(link.read_dump(timeout), at_once=view.stop_is_due)
        if view.run_id or view.stopping or not self.view.run_id:  # not a blank one's
            self._show(view)

    def _keep(self, dump: dict[str, Any] | None, at_once: bool) -> None:
        """Goes out with the next beat; `at_once` where ps 0 waits for it."""
        if dump is not None and dump["run_id"]:
            with self._changed:
                if at_once:
                    self._wanted = self._beat.number + 1
                self._beat = dataclasses.replace(
                    self._beat, recall=dump, resumes=False, kept=dump["phase"]
                )

    def _show(self, view: View) -> None:
        with self._changed:
            self.view = view
            self.should_stop = view.stopping or (
                view.verdict(self._producer) is not None
            )
            self._changed.notify_all()

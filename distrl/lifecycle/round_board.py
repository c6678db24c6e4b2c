"""Where the rounds of a synchronous agent are planned: on ps 0.

The plan stands in a variable. Beside it lie tokens, a tiny queue for each task that
follows the rounds: a token is a copy of the plan, so that who is woken need not ask. It
may be lost, or come twice; the variable is the truth.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address, read_text, text_variable
from distrl.core.errors import PeerUnreachable
from distrl.lifecycle.round_plan import RoundPlan

_CAPACITY = 2  # tokens of a task: more would only wake for what is over

_Result = TypeVar("_Result")


class _End(abc.ABC):
    """One end of a run's board: a session that is opened when it is needed.

    Calls raise PeerUnreachable when ps 0 does not answer within `timeout` s; the next
    one opens a new session.
    """

    def __init__(self, run_id: str, address: Address, timeout: float = 10.0):
        self._run_id, self._address, self._timeout = run_id, address, timeout
        self._session: tf.Session | None = None

    @abc.abstractmethod
    def _build(self) -> None:
        """Makes the operations, in the current graph and on the current device."""

    def _plan(self) -> tf.Tensor:
        return text_variable(f"round_plan/{self._run_id}")

    def _tokens(self, task: str) -> tf.QueueBase:
        name = f"round_tokens/{self._run_id}/{task}"
        return tf.FIFOQueue(_CAPACITY, [tf.string], [[]], shared_name=name)

    def _run(
        self,
        function: Callable[[Any], _Result],
        stopping: threading.Event | None = None,
    ) -> _Result:
        try:
            if self._session is None:
                graph = tf.Graph()
                with graph.as_default(), tf.device(self._address.device):
                    self._build()
                self._session = sessions.open_session(
                    graph, self._address.host, self._timeout, stopping
                )
                graph.finalize()
            return function(self._session)
        except (tf.errors.DeadlineExceededError, *sessions.PEER_ERRORS) as error:
            self.close()
            text = f"rounds at {self._address}: {error.message}"
            raise PeerUnreachable(text) from error

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            sessions.close_session(session)


class RoundBoard(_End):
    """The learner's end.

    board.write(RoundPlan(round, version, shares), wake=["actor/0", "memory/0"])
    """

    def __init__(self, run_id: str, address: Address, timeout: float = 10.0):
        super().__init__(run_id, address, timeout)
        self._tasks: list[str] = []
        self._written = -1

    def _build(self) -> None:
        self._text = tf.placeholder(tf.string, [])
        self._write = tf.raw_ops.AssignVariableOp(
            resource=self._plan(), value=self._text
        )
        self._wakes = {task: self._build_wake(task) for task in self._tasks}

    def _build_wake(self, task: str) -> tf.Operation:
        """Leaves a token behind the plan, unless enough of them are there."""
        queue = self._tokens(task)
        with tf.control_dependencies([self._write]):
            room = queue.size() < _CAPACITY
        return tf.cond(room, lambda: queue.enqueue(self._text), tf.no_op)

    def write(self, plan: RoundPlan, wake: Sequence[str] = ()) -> None:
        """Puts up a plan and wakes these tasks, such as "actor/3", in one exchange.

        Raises ValueError unless the plan's number is above that of the one before.
        """
        if plan.round <= self._written:
            raise ValueError(f"round {plan.round} after round {self._written}")
        if not set(wake) <= set(self._tasks):  # the graph needs their queues
            self._tasks = sorted({*self._tasks, *wake})
            self.close()

        def put(session: tf.Session) -> None:
            run = [self._write, *(self._wakes[task] for task in wake)]
            limit = sessions.limited(self._timeout)
            session.run(run, {self._text: plan.encode()}, options=limit)

        self._run(put)
        self._written = plan.round


class RoundReader(_End):
    """The end of a task that follows the rounds."""

    def __init__(self, run_id: str, address: Address, task: str, timeout: float = 10.0):
        """`task` is its name, such as "actor/3"."""
        super().__init__(run_id, address, timeout)
        self._task = task

    def _build(self) -> None:
        self._read = read_text(self._plan())
        self._token = self._tokens(self._task).dequeue()

    def read(self) -> RoundPlan | None:
        """The newest plan, None before the first."""

        def get(session: tf.Session) -> RoundPlan | None:
            limit = sessions.limited(self._timeout)
            try:
                return RoundPlan.decode(session.run(self._read, options=limit))
            except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
                return None

        return self._run(get)

    def wait(
        self, timeout: float, stopping: threading.Event | None = None
    ) -> RoundPlan | None:
        """The plan of a token that is there, or comes within `timeout` s."""

        def take(session: tf.Session) -> RoundPlan | None:
            limit = sessions.limited(timeout)
            try:
                return RoundPlan.decode(session.run(self._token, options=limit))
            except tf.errors.DeadlineExceededError:
                return None

        return self._run(take, stopping)

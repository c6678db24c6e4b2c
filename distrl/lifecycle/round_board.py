"""Where the rounds of a synchronous agent are planned: on ps 0.

The plan stands in a variable, beside the published parameters. Tokens lie in a tiny
queue for each task that follows the rounds: a token is a copy of plan and parameters,
so that who is woken need not ask. It may be lost, or come twice; the variables are the
truth. All of it is one exchange with ps 0.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow.compat.v1 as tf

from distrl.cluster import sessions
from distrl.cluster.channel import Address, read_text, text_variable
from distrl.cluster.parameter_store import build_write
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
        return tf.FIFOQueue(_CAPACITY, [tf.string, tf.uint8], shared_name=name)

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

    board = RoundBoard(run_id, address, store.name)
    part = store.write_others(version, parameters)
    board.write(RoundPlan(round, version, shares), part, ["actor/0"], ["memory/0"])
    """

    def __init__(
        self, run_id: str, address: Address, parameters: str, timeout: float = 10.0
    ):
        """`parameters` is the name of the published set."""
        super().__init__(run_id, address, timeout)
        self._parameters = parameters
        self._tasks: list[str] = []
        self._written = -1

    def _build(self) -> None:
        self._part = build_write(self._parameters)
        self._text = tf.placeholder(tf.string, [])
        with tf.control_dependencies([self._part.write_and_hint]):
            self._write = tf.raw_ops.AssignVariableOp(
                resource=self._plan(), value=self._text
            )
        nothing = tf.zeros([0], tf.uint8)
        self._wakes = {
            (task, full): self._wake(task, self._part.part_ph if full else nothing)
            for task in self._tasks
            for full in (True, False)
        }

    def _wake(self, task: str, part: tf.Tensor) -> tf.Operation:
        """Leaves a token behind the plan, unless enough of them are there."""
        queue = self._tokens(task)
        with tf.control_dependencies([self._write]):
            room = queue.size() < _CAPACITY
        return tf.cond(room, lambda: queue.enqueue([self._text, part]), tf.no_op)

    def write(
        self,
        plan: RoundPlan,
        part: np.ndarray,
        actors: Sequence[str] = (),
        memories: Sequence[str] = (),
    ) -> None:
        """Puts up a plan, and `part`, the parameters on ps 0, and wakes these tasks,
        such as "actor/3"; memories need no parameters.

        Raises ValueError unless the plan's number is above that of the one before.
        """
        if plan.round <= self._written:
            raise ValueError(f"round {plan.round} after round {self._written}")
        if not {*actors, *memories} <= set(self._tasks):  # the graph needs their queues
            self._tasks = sorted({*self._tasks, *actors, *memories})
            self.close()

        def put(session: tf.Session) -> None:
            wakes = [self._wakes[task, True] for task in actors]
            wakes += [self._wakes[task, False] for task in memories]
            feeds = {
                self._text: plan.encode(),
                self._part.part_ph: part,
                self._part.version_ph: plan.version,
            }
            limit = sessions.limited(self._timeout)
            session.run([self._write, *wakes], feeds, options=limit)

        self._run(put)
        self._written = plan.round


class Token(NamedTuple):
    """What who is woken gets."""

    plan: RoundPlan
    part: np.ndarray  # the parameters on ps 0; of a memory's, empty


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
    ) -> Token | None:
        """A token that is there, or comes within `timeout` s."""

        def take(session: tf.Session) -> Token | None:
            try:
                text, part = session.run(self._token, options=sessions.limited(timeout))
            except tf.errors.DeadlineExceededError:
                return None
            return Token(RoundPlan.decode(text), part)

        return self._run(take, stopping)

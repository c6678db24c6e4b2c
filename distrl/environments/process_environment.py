"""One environment in a process of its own, with promises."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import gymnasium
from gymnasium.error import ClosedEnvironmentError

from distrl.core.child_process import ChildLimits, ChildProcess, Outcome, Promise
from distrl.core.nests import flatten_as, unflatten_as
from distrl.core.specs import EnvironmentSpec, Nest
from distrl.environments.environment_host import EnvironmentHost, HostDescription
from distrl.environments.slot_workers import PRELOAD
from distrl.environments.slots import Factory


class ProcessEnvironment:
    """A Gymnasium environment in a child process: slow, bound to the GIL, or fragile.

        with ProcessEnvironment(make_simulator, "simulator 3") as environment:
            observation, info = environment.reset()
            promise = environment.step(policy(observation), blocking=False)
            ...
            observation, reward, terminated, truncated, info = promise.result()

    Calls are done in the order in which they were made. Errors have their own type; the
    traceback in the child is their cause. An environment whose `reset` or `step` has
    raised must be reset, other calls change nothing. It does not reset by itself: what
    a step behind the end of an episode does is the environment's business.

    What the child gets from this process: `environment_factory`, and what that refers
    to, by value. Module state that was set here (such as gin bindings) is not there
    under "forkserver" and "spawn", unless the factory sets it; environment variables
    are those of the first forkserver child, or of the moment under "spawn"; "fork"
    copies all. Modules are imported anew (under "spawn" the main one as well).

    Used by one thread at a time. It cannot be copied or pickled (TypeError).
    """

    def __init__(
        self,
        environment_factory: Factory,
        name: str = "environment",
        flatten: bool = False,
        start_method: str = "forkserver",
        limits: ChildLimits = ChildLimits(),
        seed: int | None = None,
    ):
        """Starts nothing.

        Args:
          environment_factory: called in the child.
          name: for messages.
          flatten: lists of leaves travel in place of nests; the result is the same.
          start_method: "forkserver" or "spawn"; "fork" only without TensorFlow;
            "inline" starts nothing: the environment lives in this process, without
            pickling and without limits (see ChildProcess).
          limits: on waiting for the start, replies, and the end.
          seed: of the first reset, unless that has one of its own.

        Raises TypeError for what is no factory or cannot be pickled, ValueError for
        another start method.
        """
        if not callable(environment_factory):
            raise TypeError(
                "expected a factory that makes an environment, got a non-callable "
                f"{type(environment_factory).__name__}: {environment_factory!r}"
            )
        self.name, self._flatten = name, flatten
        self._description: HostDescription | None = None
        host = functools.partial(
            EnvironmentHost, environment_factory, name, flatten, seed
        )
        self._child = ChildProcess(host, name, start_method, limits, preload=PRELOAD)

    def start(self, wait: bool = True) -> None:
        """Starts the process; waits until the environment is made unless told not to.

        Raises RuntimeError when it was started before, else what `wait_start` raises.
        """
        self._check_open("start")
        self._child.start()
        if wait:
            self.wait_start()

    def wait_start(self, timeout: float | None = None) -> None:
        """Returns once the environment is there; ends the process if that fails.

        Waits `timeout` s, by default `startup_secs` of the limits. Raises what the
        factory raised, TypeError if it made no gymnasium.Env, ConfigError for an
        unsupported space, ChildDied, and TimeoutError (then it may be called again).
        """
        self._check_open("wait_start")
        try:
            self._description = self._child.wait_ready(timeout)
        except BaseException:
            if self._child.state == "failed":
                self.close()
            raise

    @property
    def spec(self) -> EnvironmentSpec:
        """Nests of what is observed and done. Raises RuntimeError before the start."""
        return self._described("spec").spec

    @property
    def observation_space(self) -> gymnasium.Space:
        return self._described("observation_space").observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        return self._described("action_space").action_space

    @property
    def render_mode(self) -> str | None:
        return self._described("render_mode").render_mode

    @property
    def pid(self) -> int | None:
        """The process's id; None before the start."""
        return self._child.pid

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        blocking: bool = True,
    ) -> Any:
        """Observation and info, or a promise of them if not `blocking`."""
        spec = self._described("reset").spec
        promise = self._ask("reset", seed, options)
        return self._reply(promise, spec, blocking)

    def step(self, action: Nest, blocking: bool = True) -> Any:
        """Gymnasium's five values, or a promise of them if not `blocking`.

        Raises (or promises) ResetNeeded before the first reset and behind an error;
        ValueError, with `flatten`, for an action of another structure.
        """
        spec = self._described("step").spec
        if self._flatten:
            action = flatten_as(spec.action, action)
        return self._reply(self._ask("step", action), spec, blocking)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """The promise of what a method of the environment, or of the first wrapper that
        has it, returns; or of an attribute's value."""
        return self._ask("call", name, args, kwargs)

    def get(self, name: str) -> Promise:
        """The promise of an attribute of the environment or of a wrapper."""
        return self._ask("get", name)

    def set(self, name: str, value: Any) -> Promise:
        """The promise, of None, that an attribute was set."""
        return self._ask("set", name, value)

    def render(self) -> Any:
        """A frame, uint8 `[H, W, 3]`. Raises NotImplementedError unless the environment
        was made with `render_mode="rgb_array"`."""
        if self.render_mode != "rgb_array":
            raise NotImplementedError(
                f"Only rgb_array rendering is supported, not {self.render_mode!r}"
            )
        return self.call("render").result()

    def close(self) -> None:
        """Closes the environment and ends the process, within the limits; in any state,
        and also twice. What the environment's `close` raises is logged."""
        self._child.close()

    def __enter__(self) -> ProcessEnvironment:
        try:
            if self._child.state == "new":
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a ProcessEnvironment cannot be copied or pickled: it owns a process"
        )

    def _check_open(self, what: str) -> None:
        if self._child.state == "closed":
            raise ClosedEnvironmentError(f"{self.name}: {what!r} behind its close()")

    def _described(self, what: str) -> HostDescription:
        self._check_open(what)
        if self._description is None:
            raise RuntimeError(f"{self.name}: {what!r} before start() and wait_start()")
        return self._description

    def _ask(self, method: str, *args: Any) -> Promise:
        self._check_open(method)
        return self._child.call(method, *args)

    def _reply(self, promise: Promise, spec: EnvironmentSpec, blocking: bool) -> Any:
        packed = _PackedPromise(promise, spec.observation) if self._flatten else promise
        return packed.result() if blocking else packed


class _PackedPromise:
    """A promise whose observation comes as a list of leaves; read like any other."""

    def __init__(self, promise: Promise, spec: Nest):
        self.method = promise.method
        self._promise, self._spec = promise, spec

    @property
    def settled(self) -> bool:
        return self._promise.settled

    @property
    def done(self) -> bool:
        return self._promise.done

    def result(self, timeout: float | None = None) -> Any:
        return self._unpacked(self._promise.result(timeout))

    def outcome(self, timeout: float | None = None) -> Outcome:
        outcome = self._promise.outcome(timeout)
        if outcome.error is not None:
            return outcome
        return Outcome(self._unpacked(outcome.value))

    def _unpacked(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (unflatten_as(self._spec, values[0]), *values[1:])

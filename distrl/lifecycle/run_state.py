"""The state of a run as a plain object: beats and a clock go in, decisions come out.

No TensorFlow, no thread, no clock of its own (but for the date of the stop): the stop
monitor on ps 0 feeds it.
"""

from __future__ import annotations

import logging

from distrl.cluster.spec import ELASTIC_JOBS, SERVING_JOBS, ClusterSpec
from distrl.lifecycle.beat import DONE, FAILED, JOINED, Beat
from distrl.lifecycle.books import LEFT, Books
from distrl.lifecycle.config_difference import difference, specs_of
from distrl.lifecycle.failure_policy import RESTART, FailurePolicies
from distrl.lifecycle.failures import Failures
from distrl.lifecycle.member import Member
from distrl.lifecycle.run_recall import recall
from distrl.lifecycle.settings import StopConditions, Timeouts

log = logging.getLogger(__name__)

STARTING, RUNNING, STOPPING, FINISHED = "starting", "running", "stopping", "finished"
LOST, REFUSED = "lost", "refused"
GONE = (DONE, LOST, FAILED, REFUSED)
CHIEF = "learner/0"
ENDING = "the run is ending"  # why a late task is refused
FAILURE = "failure: "  # how the stop reason of a failed run begins
_DEFAULT_POLICIES = FailurePolicies()


class RunState:
    """Members, totals and the phase of one run. `now` is any monotonic clock, in s.

    `config` is ps 0's own configuration, key → value; a task whose differs is refused.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        config: dict[str, str],
        stop: StopConditions,
        timeouts: Timeouts,
        now: float,
        policies: FailurePolicies = _DEFAULT_POLICIES,
    ):
        self.phase, self.stop_reason, self.run_id = STARTING, "", ""
        self.members: dict[str, Member] = {}
        self._cluster, self.config = cluster, dict(config)
        self._stop_conditions, self._timeouts = stop, timeouts
        self.failures = Failures(policies, timeouts.startup_secs)
        # Learner 0 has heard of the stop: another ps 0 would hear it from there.
        self.stop_is_kept = policies.of("ps").action != RESTART
        self.books = Books()
        self.checkpoint = self.restored = 0
        self._started = self._ticked = now
        self._had_actor = now
        self.running_since: float | None = None
        self.stopping_since: float | None = None
        self.ran_before = 0.0  # s, in the lives that this run was resumed from

    # What goes in.

    def receive(self, beat: Beat, now: float) -> None:
        """Takes a beat in; older ones than the last, and fenced tasks, are ignored."""
        if f"{beat.name}/{beat.incarnation}" in self.members:
            return  # it was refused
        if beat.recall is not None and not self.run_id:
            recall(self, beat.recall, beat.resumes, now)
        member = self.members.get(beat.name)
        if member is None or beat.incarnation > member.incarnation:
            member = self._join(beat, now)
        elif beat.incarnation < member.incarnation or beat.number <= member.number:
            return
        if member.state in (REFUSED, LOST, FAILED):
            return  # it has to come back under a new incarnation
        self.books.take(beat)
        if beat.progress != member.progress:
            member.progress, member.moved, member.stalled = beat.progress, now, False
        member.number, member.heard = beat.number, now
        member.state, member.message = beat.state, beat.message
        self.run_id = beat.run_id or self.run_id
        self.restored = beat.restored or self.restored
        self.stop_is_kept |= beat.kept in (STOPPING, FINISHED)
        if self.phase in (STARTING, RUNNING):  # from then on, the last one is known
            self.checkpoint = max(self.checkpoint, beat.checkpoint)
        if beat.state == FAILED:
            cause = f"{beat.name}: {beat.message}"
            again = beat.fatal or (
                self.phase == STARTING and beat.job not in ELASTIC_JOBS
            )
            if again:  # it would fail in the same way
                self.stop(FAILURE + cause, now)
            self.has_failed(beat.name, beat.incarnation, cause, now)
        elif beat.state == DONE:
            self.books.close(beat.name, beat.incarnation, LEFT)
        elif beat.stop_request:
            self.stop(beat.stop_request, now)

    def _join(self, beat: Beat, now: float) -> Member:
        refusal = self._refusal(beat)
        state = REFUSED if refusal else JOINED
        member = Member(
            beat.incarnation, 0, state, refusal, beat.progress, heard=now, moved=now
        )
        before = self.members[beat.name] if self._has_joined(beat.name) else None
        # Who is refused takes nobody's place, but stands beside.
        beside = f"/{beat.incarnation}" if refusal and before else ""
        self.members[beat.name + beside] = member
        if before and not refusal:  # started again before anybody missed it
            cause = f"{beat.name} was replaced by a newer one"
            self.has_failed(beat.name, before.incarnation, cause, now)
        if not refusal:
            self.failures.came_back(beat.name)
        if refusal and refusal != ENDING and beat.job not in ELASTIC_JOBS:
            self.stop(f"{FAILURE}{beat.name} was refused: {refusal}", now)
        return member

    def _refusal(self, beat: Beat) -> str:
        """Why this task may not join, or ''; the first specs become the run's."""
        awaited = self.phase == STOPPING and self._awaits(beat.name)
        if self.phase in (STOPPING, FINISHED) and not awaited:
            return ENDING
        theirs = beat.config or {}
        if found := difference(self.config, theirs):
            return f"its configuration differs from the run's: {found}"
        self.config |= specs_of(theirs)
        return ""

    def _awaits(self, name: str) -> bool:
        """Whether a run that ends needs this task, and expects it back: the learner
        that sums it up."""
        return name == CHIEF and self.failures.awaits(name)

    def stop(self, reason: str, now: float) -> None:
        """Raises `stopping`, once; the first reason stays."""
        if self.phase in (STARTING, RUNNING):
            self.phase, self.stop_reason = STOPPING, reason
            self.stopping_since = now
            log.info("stopping: %s", reason)

    def tick(self, now: float) -> None:
        """Lets time pass: losses, start-up, stop conditions, the end."""
        late = now - self._ticked - 2 * self._timeouts.beat_period_secs
        self._ticked = now
        if late > 0:  # the monitor itself was held up: nobody could be heard
            for member in self.members.values():
                member.heard = min(now, member.heard + late)
                member.moved = min(now, member.moved + late)
        self._look_for_losses(now)
        if overdue := self.failures.overdue(now):
            self.stop(FAILURE + overdue, now)
        if self.phase == STARTING:
            self._look_at_start(now)
        if self.phase == RUNNING:
            self._look_at_stop_conditions(now)
            self._look_for_actors(now)
        if self.phase == STOPPING and self._all_gone(but="ps/"):
            if not (self._awaits_somebody(now) or self._awaits(CHIEF)):
                self.phase = FINISHED

    # What it decides.

    def _look_for_losses(self, now: float) -> None:
        for name, member in self.members.items():
            if member.state != JOINED:
                continue
            silent, still = now - member.heard, now - member.moved
            if silent > self._timeouts.silence_secs(len(self.members)):
                member.state = LOST
                member.message = f"no beats for {silent:.0f} s"
                cause = f"{name} is lost: {member.message}"
                self.has_failed(name, member.incarnation, cause, now)
            elif still > self._timeouts.stall_secs and not member.stalled:
                member.stalled = True
                log.warning("%s beats but has not moved for %.0f s", name, still)

    def has_failed(self, name: str, incarnation: int, cause: str, now: float) -> None:
        """A member has failed: the policy of its job says what comes of it."""
        self.books.close(name, incarnation)
        left = self._num_joined(name.split("/")[0])
        if reason := self.failures.add(name, cause, name in self._listed(), left, now):
            self.stop(FAILURE + reason, now)

    def missing(self) -> list[str]:
        """The listed tasks (and an actor, and a run id) that are not there yet."""
        names = [
            f"{name} ({address})"
            for name, address in self._listed().items()
            if not self._has_joined(name)
        ]
        names += [] if self._num_joined("actor") else ["an actor"]
        return names + ([] if self.run_id else ["a run id (learner/0 brings it)"])

    def _listed(self) -> dict[str, str]:
        """The tasks that the cluster lists, and their addresses."""
        return {
            f"{job}/{index}": address
            for job in SERVING_JOBS
            for index, address in enumerate(self._cluster.addresses(job))
        }

    def _has_joined(self, name: str) -> bool:
        return name in self.members and self.members[name].state == JOINED

    def _num_joined(self, job: str) -> int:
        return sum(
            name.startswith(f"{job}/") and member.state == JOINED
            for name, member in self.members.items()
        )

    def _look_at_start(self, now: float) -> None:
        missing = self.missing()
        if not missing:
            self.phase, self.running_since = RUNNING, now
        elif now - self._started > self._timeouts.startup_secs:
            self.stop(
                f"{FAILURE}after {self._timeouts.startup_secs:.0f} s these have not "
                f"joined: {', '.join(missing)}",
                now,
            )

    def _look_at_stop_conditions(self, now: float) -> None:
        conditions, totals = self._stop_conditions, self.books.totals()
        for key in ("env_steps", "learner_steps"):
            limit = getattr(conditions, f"max_{key}")
            if limit is not None and totals.get(key, 0) >= limit:
                self.stop(f"max_{key}={limit} reached", now)
        if conditions.max_seconds is not None and (
            self.running_secs(now) >= conditions.max_seconds
        ):
            self.stop(f"max_seconds={conditions.max_seconds} reached", now)
        target = conditions.target_return
        reached = self.books.gauge("evaluation_return")
        if target is not None and reached is not None and reached >= target:
            self.stop(f"target_return={target} reached: {reached}", now)

    def _look_for_actors(self, now: float) -> None:
        if self._num_joined("actor"):
            self._had_actor = now
        elif now - self._had_actor > self._timeouts.startup_secs:
            last = self.failures.last and f"; the last failure: {self.failures.last}"
            self.stop(f"{FAILURE}no actor has been left for a while{last}", now)

    def _all_gone(self, but: str) -> bool:
        return all(
            member.state in GONE or name.startswith(but)
            for name, member in self.members.items()
        )

    def _awaits_somebody(self, now: float) -> bool:
        """Whether tasks of a run that was stopped in its start-up are still on their
        way: they would wait for ps 0, so it waits for them, to tell them."""
        if (
            self.running_since is not None
            or now - self._started > self._timeouts.startup_secs
            or now - (self.stopping_since or now) > self._timeouts.shutdown_secs
        ):
            return False
        actors = sum(name.startswith("actor/") for name in self.members)
        return actors < self._cluster.num_actors or any(
            name not in self.members for name in self._listed()
        )

    @property
    def may_leave(self) -> bool:
        """Whether ps 0 may: the run is finished and every other task is gone."""
        return self.phase == FINISHED and self._all_gone(but="ps/0")

    # What others read.

    def running_secs(self, now: float) -> float:
        """Seconds since the start-up ended, up to the stop."""
        if self.running_since is None:
            return self.ran_before
        ran = (self.stopping_since or now) - self.running_since
        return self.ran_before + ran

    def near_end(self, now: float) -> bool:
        """Whether a limit on steps is so near that tasks should beat more often."""
        secs, totals = self.running_secs(now), self.books.totals()
        if self.phase != RUNNING or not secs:
            return False
        fraction = self._stop_conditions.fraction(
            totals.get("env_steps", 0), totals.get("learner_steps", 0), 0.0
        )
        left = secs * (1 / fraction - 1) if fraction else float("inf")
        return left < 3 * self._timeouts.beat_period_secs

    def lost(self) -> dict[str, int]:
        """The lost members and their incarnations."""
        members = self.members.items()
        return {name: m.incarnation for name, m in members if m.state == LOST}

    @property
    def stop_is_due(self) -> bool:
        """Whether nobody else is told yet that the run is stopping: who has left could
        not be called back, if ps 0 died and another one did not know of the stop."""
        told = self.stop_is_kept or not self.run_id or not self._has_joined(CHIEF)
        return self.phase == STOPPING and not told

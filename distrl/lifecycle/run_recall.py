"""The state of a run outside of ps 0, so that another ps 0 can go on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distrl.lifecycle.beat import JOINED
from distrl.lifecycle.config_difference import specs_of
from distrl.lifecycle.member import Member

if TYPE_CHECKING:  # it calls what is here
    from distrl.lifecycle.run_state import RunState


def dump(state: RunState, now: float) -> dict[str, Any]:
    """All that another ps 0 needs to know, JSON; times are ages in s."""
    since = state.stopping_since
    return {
        "run_id": state.run_id,
        "phase": state.phase,
        "stop_reason": state.stop_reason,
        "ran": state.running_since is not None,
        "running_secs": state.running_secs(now),
        "stopping_secs": None if since is None else now - since,
        "specs": specs_of(state.config),
        "members": {name: m.dump() for name, m in state.members.items()},
        "books": state.books.dump(),
        "failures": state.failures.dump(now),
        "checkpoint": state.checkpoint,
        "restored": state.restored,
    }


def recall(state: RunState, dumped: dict[str, Any], resumes: bool, now: float) -> None:
    """Takes over what an earlier ps 0 knew; who has beaten since stays as it is.

    In a run that `resumes` nobody from then is alive, and the run begins anew.
    """
    state.run_id = dumped["run_id"]
    state.config |= dumped["specs"]
    state.books.recall(dumped["books"])
    state.checkpoint = dumped["checkpoint"]
    state.ran_before = dumped["running_secs"]
    if resumes:
        state.books.close_all()
        return
    state.failures.recall(dumped["failures"], now)
    state.phase, state.stop_reason = dumped["phase"], dumped["stop_reason"]
    state.restored = dumped["restored"]
    if dumped["ran"]:
        state.running_since = now
    if dumped["stopping_secs"] is not None:
        state.stopping_since, state.stop_is_kept = now, True
    for name, fields in dumped["members"].items():
        _take_member(state, name, Member(**fields, heard=now, moved=now), now)


def _take_member(state: RunState, name: str, member: Member, now: float) -> None:
    newer = state.members.get(name)
    if newer is None:
        state.members[name] = member
    elif newer.incarnation > member.incarnation and member.state == JOINED:
        cause = f"{name} was replaced by a newer one"
        state.has_failed(name, member.incarnation, cause, now)
        state.failures.came_back(name)

"""How a run is doing, for the person who looks at the terminal.

A status is a dict; every key may be missing or None:

    phase                 "starting", "running", "stopping", "finished"
    goal_fraction         share of the goal done, 0 to 1
    goal                  what ends the run, such as "max_env_steps=300000"
    secs_left             seconds until then, estimated
    env_steps             total; env_steps_per_sec
    learner_steps         total; learner_steps_per_sec
    mean_return           of the last 100 training episodes
    evaluation_return     of the last greedy evaluation
    memory_size           rows; memory_capacity; memory_gib, what a full one takes
    channels              {name: {"size": n, "capacity": n}}, in messages
    waits                 {job: share of its time that it waits, 0 to 1}
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

Status = Mapping[str, Any]

WAITS = {
    "actor": "actors wait {} for room in experience",
    "memory": "memory waits {} for rows or room",
    "learner": "learner waits {} for batches",
}


class Progress:
    """A live table on a terminal; elsewhere a plain line now and then.

    with Progress("apex cartpole") as progress:
        while running:
            progress.update(status)
    """

    def __init__(
        self,
        description: str,
        plain_period_secs: float = 10.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`stream` is standard output unless given; a terminal is asked of it."""
        self._description = description
        self._period = plain_period_secs
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._next_line = -math.inf
        self._pending: Status | None = None
        self._live = self._open_live() if self._stream.isatty() else None

    def update(self, status: Status) -> None:
        """Shows the status, on a terminal at once, else when the period has passed."""
        if self._live is not None:
            self._live.update(_table(self._description, status), refresh=True)
            return
        self._pending = status
        if self._clock() >= self._next_line:
            self._print_pending()

    def close(self) -> None:
        """Leaves the last status to be read. May be called again."""
        if self._live is not None:
            self._live.stop()
        elif self._pending is not None:
            self._print_pending()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _print_pending(self) -> None:
        line = format_line(self._pending or {})
        print(f"{self._description}: {line}", file=self._stream, flush=True)
        self._pending, self._next_line = None, self._clock() + self._period

    def _open_live(self) -> Any:
        from rich.console import Console
        from rich.live import Live

        live = Live(console=Console(file=self._stream), auto_refresh=False)
        live.start()
        return live


def format_line(status: Status) -> str:
    """The status in one plain line."""
    return " | ".join(f"{title} {text}".strip() for title, text in _rows(status))


def _table(description: str, status: Status) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(description), show_header=False, title_justify="left")
    for title, text in _rows(status):
        table.add_row(escape(title), escape(text))
    return table


def _rows(status: Status) -> list[tuple[str, str]]:
    """What there is to say, as (title, text); nothing about missing keys."""
    known = {key: value for key, value in status.items() if value is not None}
    rows = [
        ("phase", known.get("phase", "")),
        ("goal", _goal(known)),
        ("env steps", _count(known, "env_steps")),
        ("learner steps", _count(known, "learner_steps")),
        ("return", _returns(known)),
        ("memory", _memory(known)),
        ("channels", _channels(known.get("channels", {}))),
    ]
    rows += [("", text) for text in _waits(known.get("waits", {}))]
    return [(title, text) for title, text in rows if text]


def _goal(known: Status) -> str:
    parts = [known.get("goal", "")]
    if "goal_fraction" in known:
        parts.insert(0, _percent(known["goal_fraction"]))
    if "secs_left" in known:
        parts.append(f"{_duration(known['secs_left'])} left")
    return ", ".join(part for part in parts if part)


def _count(known: Status, key: str) -> str:
    rate = known.get(f"{key}_per_sec")
    parts = [f"{known[key]:,.0f}"] if key in known else []
    if rate is not None:
        parts.append(f"({rate:,.0f}/s)" if parts else f"{rate:,.0f}/s")
    return " ".join(parts)


def _returns(known: Status) -> str:
    parts = []
    if "mean_return" in known:
        parts.append(f"{known['mean_return']:.1f}")
    if "evaluation_return" in known:
        parts.append(f"greedy {known['evaluation_return']:.1f}")
    return ", ".join(parts)


def _fill(size: float | None, capacity: float | None) -> str:
    if size is None:
        return ""
    return f"{size:,.0f}" + (f"/{capacity:,.0f}" if capacity else "")


def _memory(known: Status) -> str:
    fill = _fill(known.get("memory_size"), known.get("memory_capacity"))
    if known.get("memory_gib"):
        fill += f" ({known['memory_gib']:.2f} GiB when full)"
    return fill.strip()


def _channels(channels: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(
        f"{name} {_fill(channel.get('size'), channel.get('capacity'))}".strip()
        for name, channel in channels.items()
    )


def _waits(waits: Mapping[str, float | None]) -> list[str]:
    """Who waits for whom, in words."""
    return [
        WAITS.get(job, f"{job} waits {{}}").format(_percent(fraction))
        for job, fraction in waits.items()
        if fraction is not None
    ]


def _percent(fraction: float) -> str:
    return "? %" if math.isnan(fraction) else f"{100 * fraction:.0f} %"


def _duration(secs: float) -> str:
    """As h:mm:ss, or m:ss below an hour."""
    if not math.isfinite(secs):
        return "?"
    minutes, seconds = divmod(max(0, round(secs)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

"""Which models are verified at which sizes, and which planted faults must be found."""

from __future__ import annotations

from typing import NamedTuple

SAFETY, ENDS = "safety", "ends"


class Case(NamedTuple):
    """A model at some sizes."""

    model: str
    sizes: str  # as -D macros
    fast: bool = False
    finds: str = SAFETY  # which search finds the planted fault

    @property
    def is_faulty(self) -> bool:
        """Whether a fault is planted."""
        return "FAULT_" in self.sizes


CASES = [
    Case("delivery", "ACTORS=1 ROWS=1 CRASHES=1", fast=True),
    Case("farewell", "ACTORS=1 MEMORIES=1 CRASHES=1", fast=True),
    Case("rounds", "ACTORS=1 MEMORIES=1 CRASHES=1 ROUNDS=1", fast=True),
    Case("refill", "ACTORS=1 CRASHES=2", fast=True),
    Case("delivery", "ACTORS=2 ROWS=1 CRASHES=0 TIMEOUTS=2"),
    Case("delivery", "ACTORS=1 ROWS=1 CRASHES=1 PAUSES=1"),
    Case("delivery", "ACTORS=2 ROWS=1 CRASHES=1"),
    Case("delivery", "ACTORS=3 ROWS=1 CRASHES=0 LIVES=1"),
    Case("delivery", "ACTORS=1 ROWS=2 CRASHES=2"),
    Case("farewell", "ACTORS=1 MEMORIES=1 CRASHES=1 BATCHES=3"),
    Case("farewell", "ACTORS=2 MEMORIES=1 CRASHES=1"),
    Case("farewell", "ACTORS=2 MEMORIES=2 CRASHES=1 ITEMS=0"),
    Case("farewell", "ACTORS=1 MEMORIES=1 CRASHES=2 PAUSES=1"),
    Case("farewell", "ACTORS=3 MEMORIES=2 CRASHES=1 ITEMS=0"),
    Case("rounds", "ACTORS=1 MEMORIES=1 CRASHES=1 PAUSES=1"),
    Case("rounds", "ACTORS=2 MEMORIES=1 CRASHES=1"),
    Case("rounds", "ACTORS=3 MEMORIES=2 CRASHES=0 LIVES=1 ROUNDS=1"),
    Case("rounds", "ACTORS=2 MEMORIES=2 CRASHES=1 ROUNDS=1"),
    Case("refill", "ACTORS=2 CRASHES=2"),
    Case("refill", "ACTORS=3 CRASHES=2"),
]

FAULTS = [
    # A sender waits for a lost task, although the run stops.
    Case("delivery", "ACTORS=1 FAULT_WAIT_FOR_LOST", fast=True),
    Case("farewell", "ACTORS=1 FAULT_WAIT_FOR_LOST"),
    Case("rounds", "ACTORS=1 FAULT_WAIT_FOR_LOST"),
    # A memory closes its channel before END of every actor.
    Case("delivery", "ACTORS=1 FAULT_CLOSE_EARLY"),
    Case("farewell", "ACTORS=1 FAULT_CLOSE_EARLY", fast=True),
    # A repeated message counts twice.
    Case("delivery", "ACTORS=1 FAULT_COUNT_TWICE", fast=True),
    # A sender tries a dead host again and again without any other end.
    Case("delivery", "ACTORS=1 FAULT_SPIN_WHILE_DEAD", finds=ENDS),
    # A message whose host has died is sent to the next one.
    Case("delivery", "ACTORS=1 FAULT_REBIND"),
    # A restarted task does not close the account of the one before.
    Case("delivery", "ACTORS=1 FAULT_OLD_NOT_FENCED", fast=True),
    # A memory that sends its last batches takes no priorities meanwhile.
    Case("farewell", "ACTORS=1 CRASHES=0 BATCHES=3 FAULT_DEAF_WHILE_SENDING"),
    # A round is not given up when its memory is gone.
    Case("rounds", "ACTORS=1 FAULT_NO_VOID"),
    # A memory waits for the share of an actor that is gone.
    Case("rounds", "ACTORS=1 FAULT_BARRIER_WAITS", fast=True),
    # Rounds are planned on a memory that is lost: each is void at once.
    Case("rounds", "ACTORS=1 FAULT_PLANS_ON_LOST"),
    # A share is put into a connection to the dead memory, and lost with it.
    Case("rounds", "ACTORS=1 ROUNDS=2 FAULT_STALE_CONNECTION", fast=True),
    # A learner that was declared lost still plans.
    Case("rounds", "ACTORS=1 CRASHES=0 PAUSES=1 FAULT_FENCED_PLANS"),
    # A memory takes the share of an older round.
    Case("rounds", "ACTORS=1 FAULT_OLD_SHARES"),
    # Tasks may see `stopping` before anybody but ps 0 would remember it.
    Case("refill", "ACTORS=1 FAULT_STOP_BEFORE_KEPT", fast=True),
    # ps 0 is killed after learner 0 has left, and started again: nobody fills it.
    Case("refill", "ACTORS=1 FAULT_BLANK_AT_THE_END"),
    # Learner 0 brings the run id only.
    Case("refill", "ACTORS=1 FAULT_NO_DUMP"),
]

"""Who sits in a world: a policy, an environment, a script, a human."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Mapping, Sequence

from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.messages import Message
from distrl.worlds.reducers import Metrics, Report


class Participant:
    """Observes and acts. A subclass has to say how it acts:

        class Repeater(Participant):
            def act(self):
                return {"action": self.observation["observation"]}

    Where it sits is the world's business: the same participant may sit in several
    seats. A participant that has `batch_act(messages)` is asked once for all rows of a
    BatchWorld: `messages` has what each row observed last, {} for a row that has
    nothing to do (its answer is not looked at); the answers are as many messages.
    """

    #: How many episodes there are in an epoch; None where that is not known.
    num_episodes: int | None = None

    def __init__(self, name: str = ""):
        self.id = name or type(self).__name__
        self.observation: Message = {}
        self.metrics = Metrics()

    def observe(self, message: Message) -> None:
        """Takes in what another participant, or the world, says."""
        self.observation = message

    def act(self) -> Message:
        """What it says and does now."""
        raise NotImplementedError(f"{type(self).__name__} has no act()")

    def claim(self) -> bool:
        """Whether it can play: it goes on with its episode, or has found itself the
        next one. Asked once before each parley of the one that rules its world."""
        return True

    @property
    def epoch_done(self) -> bool:
        """Whether it has no more to play in this epoch."""
        return False

    def share(self, row: int) -> Participant:
        """The participant of row `row` of a batch: what it sees is its own, metrics,
        parameters and indices are those of the original."""
        shared = copy.copy(self)
        shared.observation = {}
        return shared

    def indices(self) -> Mapping[str, ExampleIndex]:
        """The indices that its examples come from, by name. Workers are lent numbers
        by them: one that is not here would be played by each of them."""
        return {}

    def reset(self) -> None:
        """Forgets its episode; an index begins anew."""
        self.observation = {}

    def reset_metrics(self) -> None:
        self.metrics.clear()

    def report(self) -> Report:
        """What it has measured since its metrics were reset. Changes nothing."""
        return dict(self.metrics)

    def save(self, directory: pathlib.Path) -> None:
        """Writes what it has learnt, if anything, into this directory."""

    def shutdown(self) -> None:
        """Frees what it holds itself; of what it shares, the original does. May be
        called again."""


class ScriptedParticipant(Participant):
    """Says given messages in turn, and begins again behind the last. Each copy begins
    with the first."""

    def __init__(self, script: Sequence[Message], name: str = ""):
        """Raises TypeError for what is no list of messages, ValueError for none."""
        super().__init__(name)
        if not isinstance(script, Sequence):
            raise TypeError(f"a script is a list of messages, got {script!r}")
        if not script:
            raise ValueError("a script needs a message or more, got none")
        self._script, self._next = list(script), 0

    def act(self) -> Message:
        message = self._script[self._next]
        self._next = (self._next + 1) % len(self._script)
        return message

    def share(self, row: int) -> ScriptedParticipant:
        shared = copy.copy(self)
        shared.observation, shared._next = {}, 0
        return shared

    def reset(self) -> None:
        super().reset()
        self._next = 0

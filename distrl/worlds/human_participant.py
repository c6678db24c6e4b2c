"""Somebody at the terminal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distrl.worlds.messages import Message
from distrl.worlds.participant import Participant


class HumanParticipant(Participant):
    """Shows what it observes, and asks for the number of an action until it is a legal
    one: by the mask that it observes, or below `num_actions`. It is not asked behind
    the end of a game.

    It needs a terminal, so a world of this process (`num_workers=0`).
    """

    def __init__(
        self,
        name: str = "human",
        show: Callable[[Message], str] | None = None,
        ask: Callable[[str], str] = input,
        say: Callable[[str], None] = print,
        num_actions: int | None = None,
    ):
        """`show` makes a text of a message; without it, all of it is shown."""
        super().__init__(name)
        self._show = show or _text
        self._ask, self._say = ask, say
        self._actions = None if num_actions is None else list(range(num_actions))

    def observe(self, message: Message) -> None:
        super().observe(message)
        self._say(self._show(message))

    def act(self) -> Message:
        """Raises EOFError when nobody is there any more."""
        if self.observation.get("terminated") or self.observation.get("truncated"):
            return {}
        legal = self.observation.get("legal_actions")
        choices = self._actions if legal is None else np.flatnonzero(legal).tolist()
        among = "" if choices is None else f" {choices}"
        while True:
            text = self._ask(f"{self.id}, your action{among}: ").strip()
            try:
                action = int(text)
            except ValueError:
                self._say(f"expected a number, got {text!r}")
                continue
            if choices is None or action in choices:
                return {"action": action}
            self._say(f"{action} is not one of {choices}")


def _text(message: Message) -> str:
    return "\n".join(f"{name}: {value}" for name, value in message.items())

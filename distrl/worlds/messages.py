"""What participants of a world tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A message is any mapping; all of its fields are optional:
#:
#:   id             str, who says it; a world fills it in
#:   seat           int, where they sit; written by the world, whatever was there
#:   action         what the sender does
#:   observation    what there is to see, a nest of arrays
#:   reward         float, of the receiver since its last act
#:   terminated     bool, the episode has come to its end
#:   truncated      bool, the episode was cut
#:   episode_done   bool, this is the last message of an episode
#:   legal_actions  bool [A], what the receiver may do
#:   episode        int, the number of the episode, in its first message
#:   info           a dict of anything else
#:
#: Worlds and participants are free to add others.
Message = Mapping[str, Any]


def checked(message: Any) -> Message:
    """The message. Raises RuntimeError for what is no mapping."""
    if not isinstance(message, Mapping):
        raise RuntimeError(f"Must return dictionary from act(). Got {message!r}")
    return message

"""Two participants, in turn."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.worlds.participant import Participant
from distrl.worlds.world import Turns, World


class PartnerWorld(World):
    """An environment and a policy, a teacher and a student, two players.

        0 acts ► 1 observes ► 1 acts ► 0 observes

    Participant 0 alone says when an episode and the epoch are over.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        name: str = "",
        metrics: Sequence[str] | None = None,
    ):
        """Raises RuntimeError unless they are two."""
        if len(participants) != 2:
            raise RuntimeError(
                "There must be exactly two agents for this world. "
                f"Got {len(participants)}"
            )
        super().__init__(participants, name, metrics)

    def turns(self) -> Turns:
        for seat, other in ((0, 1), (1, 0)):
            self.tell(other, self.take(seat, (yield (seat,))))

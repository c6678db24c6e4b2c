"""Any number of participants, of whom all others hear each act."""

from __future__ import annotations

from distrl.worlds.world import Turns, World


class MultiAgentWorld(World):
    """Round robin: each acts in turn, and every other seat observes it at once.

        0 acts ► 1, 2 observe ► 1 acts ► 0, 2 observe ► 2 acts ► 0, 1 observe

    So a seat has seen all acts of the round before its own, and hears of the later ones
    before its next. An episode ends when anybody's newest act says so, the epoch when
    anybody has no more to play.
    """

    def turns(self) -> Turns:
        for seat in range(len(self.participants)):
            act = self.take(seat, (yield (seat,)))
            for other in range(len(self.participants)):
                if other != seat:
                    self.tell(other, act)

    def begin(self) -> bool:
        if self.epoch_done:  # nobody takes an example that is not played then
            return False
        unique = {id(participant): participant for participant in self.participants}
        return all([participant.claim() for participant in unique.values()])

    @property
    def episode_done(self) -> bool:
        return any(act.get("episode_done", False) for act in self.acts)

    @property
    def epoch_done(self) -> bool:
        return any(participant.epoch_done for participant in self.participants)

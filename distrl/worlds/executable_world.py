"""A world that acts itself: it applies what is done, and says what each seat sees."""

from __future__ import annotations

from distrl.worlds.messages import Message
from distrl.worlds.multi_agent_world import MultiAgentWorld
from distrl.worlds.world import Turns


class ExecutableWorld(MultiAgentWorld):
    """Each act changes the world, and then every seat, the actor's too, is told what it
    perceives of it.

        0 acts ► execute ► 0, 1 perceive ► 1 acts ► execute ► 0, 1 perceive

    Each copy of it has a state of its own: what `init_world` makes.
    """

    def init_world(self) -> None:
        """Makes the state of the world: when it is made, in each copy, and in a
        reset."""

    def execute(self, seat: int, act: Message) -> None:
        """What the act of a seat does to the world."""

    def perceive(self, seat: int, actor: int, act: Message) -> Message | None:
        """What a seat observes of the act of another, or of its own; None: nothing."""
        return None if seat == actor else act

    def _clear(self) -> None:
        super()._clear()
        self.init_world()

    def turns(self) -> Turns:
        for seat in range(len(self.participants)):
            act = self.take(seat, (yield (seat,)))
            self.execute(seat, act)
            self.tell_all(seat, act)

    def tell_all(self, actor: int, act: Message) -> None:
        """Has every seat observe what it perceives of an act."""
        for seat in range(len(self.participants)):
            self.tell(seat, self.perceive(seat, actor, act))

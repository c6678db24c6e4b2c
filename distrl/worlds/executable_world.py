"""A world that acts itself: it applies what is done, and says what each seat sees."""

from __future__ import annotations

from distrl.worlds.messages import Message
from distrl.worlds.numbered_world import NumberedWorld
from distrl.worlds.world import Turns


class ExecutableWorld(NumberedWorld):
    """Each act changes the world, and then every seat, the actor's too, is told what it
    perceives of it.

        0, 1 are shown ► 0 acts ► execute ► 0, 1 perceive ► 1 acts ► execute ► …

    A game of your own says what its state is, what acts do to it, what is seen of it,
    and when it is over:

        class Nim(ExecutableWorld):
            def init_world(self):
                self.left = 7

            def show(self, seat):
                return {"observation": self.left}

            def execute(self, seat, act):
                self.left -= act["action"]

            def perceive(self, seat, actor, act):
                won = float(seat == actor) if self.over(act) else 0.0
                return {**self.show(seat), "reward": won}

            def over(self, act):
                return self.left <= 0

        Nim([player, other], ExampleIndex(100))  # an epoch of 100 games

    A parley is a round, in which every seat acts once; the rest of it is left out when
    the episode ends. Each copy has a state of its own. If that is random, it should
    follow from `self.number`: then the same number is the same episode wherever it is
    played.
    """

    def init_world(self) -> None:
        """Makes the state of the world, at the beginning of each episode."""

    def show(self, seat: int) -> Message | None:
        """What a seat observes before the first act of an episode; None: nothing."""
        return None

    def execute(self, seat: int, act: Message) -> None:
        """What the act of a seat does to the world."""

    def perceive(self, seat: int, actor: int, act: Message) -> Message | None:
        """What a seat observes of the act of another, or of its own; None: nothing."""
        return None if seat == actor else act

    def over(self, act: Message) -> bool:
        """Whether the episode has ended with this act, which was executed: by default,
        whether it says so itself."""
        return bool(act.get("episode_done", False))

    def begin_episode(self, number: int) -> None:
        self.init_world()
        for seat in range(len(self.participants)):
            self._say(seat, self.show(seat), {"episode": number})

    def turns(self) -> Turns:
        for seat in range(len(self.participants)):
            self.recall(seat)
            act = self.take(seat, (yield (seat,)))
            self.execute(seat, act)
            over = self.over(act)
            ends = {"episode_done": True} if over else {}
            for other in range(len(self.participants)):
                self._say(other, self.perceive(other, seat, act), ends)
            if over:
                self.end_episode()
                return

    def _say(self, seat: int, message: Message | None, more: Message) -> None:
        if message is not None:
            self.tell_own(seat, {"id": self.name, **message, **more})

"""An agent's decisions in progress, and the state to which a failed decision returns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from swarmbo.agent.participants import Participants
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer
from swarmbo.deciding.own_rows import OwnRows
from swarmbo.transport import Envelope

TICK = ("", b"")  # no agent has this name


class Deciding(msgspec.Struct, frozen=True):
    """Decisions in progress: their inputs, and all arrivals since. Everything else follows from these.

    ``said`` has the agent's own data before. ``heard`` has sender and payload in the order of arrival, and ``("",
    b"")`` at each tick of an agreement by a deadline. Once ``is_under_way``, messages were sent, and are not sent
    again. ``known`` has offers of the last report in a field, if all received it. A ``count`` of 0 is a recommendation.
    """

    count: int
    said: OwnRows
    offer: Offer
    turn: int
    heard: tuple[tuple[str, bytes], ...] = ()
    is_under_way: bool = False
    participants: Participants | None = None
    known: dict[str, PackedOffer] = {}

    def by_tick(self, agent: str) -> list[list[Envelope]]:
        """Arrivals before the first tick of an agreement by a deadline, and from each such tick on."""
        out: list[list[Envelope]] = [[]]
        for sender, payload in self.heard:
            if (sender, payload) == TICK:
                out.append([])
            else:
                out[-1].append(Envelope(sender, agent, payload))
        return out


@dataclass(frozen=True, eq=False)
class Begun:
    """Decisions in progress, and the log, learner and offers before them."""

    deciding: Deciding
    log: Logbook
    learner: FieldLearner | FunctionLearner
    offered: dict[str, PackedOffer]

    def hearing(self, letters: Sequence[Envelope], *, is_tick: bool = False) -> "Begun":
        """Copy with new arrivals, perhaps none; ``is_tick`` marks a tick of an agreement by a deadline."""
        new = ((letter.sender, letter.payload) for letter in letters)
        heard = (*self.deciding.heard, *((TICK,) if is_tick else ()), *new)
        return replace(self, deciding=msgspec.structs.replace(self.deciding, heard=heard, is_under_way=True))

"""What an agent is doing: decisions that are being made, and what it goes back to if they come to nothing."""

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
    """Decisions that are being made: where they began, and what has arrived since. All else follows from that.

    Args:
        count: How many, one after the other; 0: a recommendation.
        said: What the agent was told before.
        offer: In a field, where it can go.
        turn: How many decisions and recommendations came before.
        heard: Who sent what, in the order of arrival; ``("", b"")`` where a tick of an agreement by a deadline began.
        is_under_way: Whether anything was said yet: then it is not said again.
        company: Who takes part; None: all.
        known: In a field, what each offered in the report before, if all heard it.
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
        """What an agent heard: before the first tick of an agreement by a deadline, and from each such tick on."""
        out: list[list[Envelope]] = [[]]
        for sender, payload in self.heard:
            if (sender, payload) == TICK:
                out.append([])
            else:
                out[-1].append(Envelope(sender, agent, payload))
        return out


@dataclass(frozen=True, eq=False)
class Begun:
    """Decisions that are being made, and what was known before them.

    Args:
        deciding: What is being made.
        log: What was known.
        learner: What was made of it.
        offered: In a field, what each offered in the report before.
    """

    deciding: Deciding
    log: Logbook
    learner: FieldLearner | FunctionLearner
    offered: dict[str, PackedOffer]

    def hearing(self, letters: Sequence[Envelope], *, is_tick: bool = False) -> "Begun":
        """The same once something has arrived, or nothing has; ``is_tick``: by a deadline."""
        new = ((letter.sender, letter.payload) for letter in letters)
        heard = (*self.deciding.heard, *((TICK,) if is_tick else ()), *new)
        return replace(self, deciding=msgspec.structs.replace(self.deciding, heard=heard, is_under_way=True))

"""What an agent is doing: decisions that are being made, and what it goes back to if they come to nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from swarmbo.agent.reports import Offer
from swarmbo.agent.rows import OwnRows
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.logbook import Logbook
from swarmbo.transport import Envelope


class Deciding(msgspec.Struct, frozen=True):
    """Decisions that are being made: where they began, and what has arrived since. All else follows from that.

    Args:
        count: How many, one after the other; 0: a recommendation.
        said: What the agent was told before.
        offer: In a field, where it can go.
        turn: How many decisions and recommendations came before.
        heard: Who sent what, in the order of arrival.
        is_under_way: Whether anything was said yet: then it is not said again.
    """

    count: int
    said: OwnRows
    offer: Offer
    turn: int
    heard: tuple[tuple[str, bytes], ...] = ()
    is_under_way: bool = False


@dataclass(frozen=True, eq=False)
class Begun:
    """Decisions that are being made, and what was known before them.

    Args:
        deciding: What is being made.
        log: What was known.
        learner: What was made of it.
    """

    deciding: Deciding
    log: Logbook
    learner: FieldLearner | FunctionLearner

    def hearing(self, letters: Sequence[Envelope]) -> "Begun":
        """The same once something has arrived, or nothing has."""
        heard = (*self.deciding.heard, *((letter.sender, letter.payload) for letter in letters))
        return replace(self, deciding=msgspec.structs.replace(self.deciding, heard=heard, is_under_way=True))

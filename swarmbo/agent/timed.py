"""What an agent does in an agreement by a deadline: nothing that it waits for; it is ticked until the time is up."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.deadline import Correspondent
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, Routes


class Timed(NamedTuple):
    """A stage in which nobody waits; answered by what the agent does with its own variables.

    Args:
        deadline: Ticks until everyone acts.
        routes: Who reaches whom.
        agent: Who agrees, given the number of the agreement.
        again: Whether it is the second agreement of a decision.
    """

    deadline: int
    routes: Routes
    agent: Callable[[int], Correspondent]
    again: bool


class Known(NamedTuple):
    """No stage: where the agent measures, None for nowhere, known before all has been heard that the decision takes."""

    place: Float[np.ndarray, " d"] | None


class Clocked:
    """A stage that is under way.

    Args:
        stage: What it is.
        decision: Number of the decision.
        refused: Where messages are counted that held what they may not, by sender.

    Attributes:
        number: Of the agreement: two for each decision.
        sent: What its messages took.
        word: What the agent does with its own variables; None before the deadline.
    """

    def __init__(self, stage: Timed, decision: int, refused: Counter[str]) -> None:
        self.number = 2 * decision + int(stage.again)
        self.sent, self.word = Traffic(), None
        self._stage, self._agent, self._now = stage, stage.agent(self.number), 0
        self._agent.refused = refused

    word: dict[str, Any] | None

    def tick(self, inbox: Sequence[Envelope]) -> list[Envelope]:
        """A tick of the clock: what has arrived is taken, and what there is to say returned."""
        routes, name, out = self._stage.routes, self._agent.name, list[Envelope]()
        reached = routes.hops_from(name)
        for envelope in self._agent.tick(self._now, inbox):
            if envelope.recipient in reached:
                self.sent += Traffic(1, len(envelope.payload), reached[envelope.recipient])
                out.append(envelope)
        if self._now >= self._stage.deadline:
            self.word = self._agent.word()
        self._now += 1
        return out

"""An agent's stage in an agreement by a deadline: it is ticked until the time is up, and waits for nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.deadline import Correspondent
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, Routes


class Timed(NamedTuple):
    """A stage of ``deadline`` ticks without waiting; answered by the values of the agent's own variables.

    ``again`` is True for the second agreement of a decision.
    """

    deadline: int
    routes: Routes
    agent: Callable[[int], Correspondent]
    again: bool


class Known(NamedTuple):
    """The agent's measurement location (None: nowhere), known before the rest of the decision has arrived."""

    place: Float[np.ndarray, " d"] | None


class Clocked:
    """A timed stage in progress; ``word`` has the values of the agent's own variables after the deadline."""

    def __init__(self, stage: Timed, decision: int, refused: Counter[str]) -> None:
        self.number = 2 * decision + int(stage.again)
        self.sent, self.word = Traffic(), None
        self._stage, self._agent, self._now = stage, stage.agent(self.number), 0
        self._agent.refused = refused

    word: dict[str, Any] | None

    def tick(self, inbox: Sequence[Envelope]) -> list[Envelope]:
        """Tick the clock: process arrivals, and return messages to send."""
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

"""Policies of the hub for silent agents: all are needed, or failed agents are left out."""

import math
from collections import Counter
from collections.abc import Collection, Mapping

from swarmbo.coordination.schema import said_of
from swarmbo.errors import TransportError
from swarmbo.fleet.letters import Here, Ping
from swarmbo.fleet.mail import Mail
from swarmbo.fleet.plan import Plan

# seconds of waiting for an agent never heard: a person may have to go there and start it
JOINING = 600.0
_HANGS = 2  # times that an agent may hang before it stays out
_STARTING = 120.0  # seconds that a process on this machine may take to start


class AllNeeded:
    """Policy for agents that wait for one another: none may fail, and a silence of all ends the run."""

    returning: tuple[str, ...] = ()
    forgetful: frozenset[str] = frozenset()
    longest = math.inf

    def __init__(self, plan: Plan, agents: Collection[str], mail: Mail) -> None:
        self._plan, self.present, self._mail = plan, tuple(agents), mail
        self.away: Mapping[str, str] = {}
        self._quiet = 0.0

    def begin(self) -> None:
        """Start to listen."""
        self._quiet = 0.0

    def look(self, seconds: float, waited_for: str, missing: Collection[str], refused: Mapping[str, int]) -> None:
        """Raise if nothing arrived for longer than the patience; for an agent never heard, than ten minutes.
        ``seconds`` is the time of listening without arrivals, 0 if anything arrived.
        """
        self._quiet = self._quiet + seconds if seconds else 0.0
        if self._quiet > self._plan.patience_s:
            unread = {recipient for recipient, _ in self._mail.outstanding}
            silent = [agent for agent in self.present if agent in unread or agent in missing]
            if self._quiet > JOINING or all(self._mail.parcels[agent] for agent in silent):
                raise TransportError(
                    f"received nothing from {silent} for {self._quiet:.0f} s; wanted {waited_for}: do they run, by the "
                    f"fleet.json of this run, and can they be reached?{said_of(refused)}"
                )

    def hear(self, agent: str, letter: Here, *, has_orders: bool) -> None:
        """Ignore a sign of life: others wait in any case."""


class LeftOut:
    """Policy by a deadline: failed agents are left out, and readmitted. Every live agent acknowledges letters, so one
    silent for half of the patience is pinged, and fails after the whole; ten minutes if never heard.
    """

    def __init__(
        self,
        plan: Plan,
        agents: Collection[str],
        mail: Mail,
        here: Collection[str] = (),
        ended: Mapping[str, str] | None = None,
    ) -> None:
        self._plan, self._agents, self._mail = plan, tuple(agents), mail
        self._here, self._ended = frozenset(here), {} if ended is None else ended
        self.away, self.back, self.forgetful = dict[str, str](), set[str](), set[str]()
        self._hung = Counter[str]()
        self._noted = set[str]()  # agents with a noted end
        self._parcels, self._pings = Counter[str](), 0
        self._quiet: dict[str, float] = {}
        self._starts: dict[str, set[bytes]] = {}

    @property
    def longest(self) -> float:
        """Seconds after which live agents that do not carry out orders count as failed."""
        return JOINING + 10.0 * self._plan.patience_s

    @property
    def present(self) -> tuple[str, ...]:
        """Present agents."""
        return tuple(agent for agent in self._agents if agent not in self.away)

    @property
    def returning(self) -> tuple[str, ...]:
        """Agents that run again, and are not readmitted yet."""
        return tuple(agent for agent in self._agents if agent in self.back)

    def begin(self) -> None:
        """Start to listen: agents without orders have not been silent."""
        self._quiet = dict.fromkeys(self._agents, 0.0)

    def look(self, seconds: float, waited_for: str, missing: Collection[str], refused: Mapping[str, int]) -> None:
        """Note failed agents; see ``AllNeeded.look``. All arrivals must be processed before."""
        unread = {recipient for recipient, _ in self._mail.outstanding}
        for agent in self.present:
            if agent in self._ended and agent not in self._noted:
                self._noted.add(agent)
                self.leave(agent, self._ended[agent])
                continue
            come = self._mail.parcels[agent]
            quiet = 0.0 if come != self._parcels[agent] else self._quiet.get(agent, 0.0) + seconds
            self._parcels[agent], self._quiet[agent] = come, quiet
            starting = _STARTING if agent in self._here else JOINING
            patience = self._plan.patience_s if come else max(starting, self._plan.patience_s)
            if agent in unread and quiet > patience:
                self.leave(agent, f"received nothing of it for {quiet:.0f} s")
            elif agent not in unread and quiet > patience / 2.0:
                self._pings += 1
                self._mail.write(agent, Ping(self._pings))

    def leave(self, agent: str, why: str, *, is_hung: bool = False) -> None:
        """Note that an agent failed, and drop its letters. A live one that does not carry out orders ``is_hung``: it is
        readmitted once, as it would delay others repeatedly, or later with an empty journal.
        """
        self.away[agent] = why
        self._hung[agent] += is_hung
        self.back.discard(agent)
        self._mail.forget(agent)

    def hear(self, agent: str, letter: Here, *, has_orders: bool) -> None:
        """Note that an agent runs; ``has_orders`` is True if it reported an order before, and so has a journal."""
        starts = self._starts.setdefault(agent, set())
        is_again = letter.is_new and has_orders and bool(starts) and letter.start not in starts
        starts.add(letter.start)
        if is_again:
            self.forgetful.add(agent)
            del self._hung[agent]
            if agent not in self.away:
                self.leave(agent, "what it had written down is lost")
        if agent in self.away and self._hung[agent] < _HANGS:
            self.back.add(agent)

    def refuse(self, agent: str, why: str) -> None:
        """Note that an agent cannot be readmitted."""
        self.away[agent] = why
        self.back.discard(agent)

    def admit(self, agent: str) -> None:
        """Note that an agent is readmitted."""
        del self.away[agent]
        self.back.discard(agent)
        self.forgetful.discard(agent)
        self._quiet[agent] = 0.0

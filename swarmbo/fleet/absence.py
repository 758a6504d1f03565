"""Policies of a hub for agents that are silent: all are needed, or those who are gone are left out."""

import math
from collections import Counter
from collections.abc import Collection, Mapping

from swarmbo.coordination.schema import said_of
from swarmbo.errors import TransportError
from swarmbo.fleet.letters import Here, Ping
from swarmbo.fleet.mail import Mail
from swarmbo.fleet.plan import Plan

JOINING = 600.0  # seconds for which one is waited for that was never heard: somebody may have to go there and start it
_HANGS = 2  # times that one may hang before it stays out
_STARTING = 120.0  # seconds for which a process on this machine may be about to start


class AllNeeded:
    """Policy of agents that wait for one another: nobody may be gone, and silence of all ends the run.

    Args:
        plan: Of the fleet.
        agents: All of them.
        mail: The hub's.

    Attributes:
        away: Who is gone, and why: nobody.
        returning: Who is back, and not in again yet: nobody.
        forgetful: Who has lost what it had written down: nobody of whom that matters.
        longest: Seconds for which the hub waits for anything at all.
    """

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
        """Raise if nothing came for longer than the patience; of one that was never heard, than ten minutes.

        Args:
            seconds: For which the hub has listened, and nothing came; 0 if something did.
            waited_for: What it waits for.
            missing: From whom.
            refused: Letters that were refused, by sender.

        Raises:
            TransportError: It names who is silent.
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
        """Pass over that one runs: others wait for it in any case."""


class LeftOut:
    """Policy of agents by a deadline: who is gone is left out, and taken in again when it is back.

    Whoever lives sends receipts, whatever it waits for itself. So one of which nothing comes for half of the patience
    is asked whether it is there, and after the whole of it it is gone. One elsewhere that was never heard is waited
    for ten minutes: somebody may have to go there and start it; one on this machine for two, to start. Of processes on
    this machine the hub sees that they end.

    Args:
        plan: Of the fleet.
        agents: All of them.
        mail: The hub's.
        here: Those whose processes are on this machine.
        ended: Of those, who has ended for good, and why; it may grow.

    Attributes:
        away: Who is gone, and why.
        back: Of those, who says that it runs, and is not in again yet.
        forgetful: Who has lost what it had written down.
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
        self._noted = set[str]()  # whose end was taken note of
        self._parcels, self._pings = Counter[str](), 0
        self._quiet: dict[str, float] = {}
        self._starts: dict[str, set[bytes]] = {}

    @property
    def longest(self) -> float:
        """Seconds after which those who live and do not do what they are told are gone, too."""
        return JOINING + 10.0 * self._plan.patience_s

    @property
    def present(self) -> tuple[str, ...]:
        """Agents that are there."""
        return tuple(agent for agent in self._agents if agent not in self.away)

    @property
    def returning(self) -> tuple[str, ...]:
        """Agents that are back, and not in again yet."""
        return tuple(agent for agent in self._agents if agent in self.back)

    def begin(self) -> None:
        """Start to listen: who was not asked anything has not been silent."""
        self._quiet = dict.fromkeys(self._agents, 0.0)

    def look(self, seconds: float, waited_for: str, missing: Collection[str], refused: Mapping[str, int]) -> None:
        """Note who is gone.

        Args:
            seconds: For which the hub has listened, and taken all that had come; as of ``AllNeeded``, as are the rest.
            waited_for: What it waits for.
            missing: From whom.
            refused: Letters that were refused, by sender.
        """
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
        """Note that one is gone; what was written to it is not written again.

        Args:
            agent: Which.
            why: For the run's user.
            is_hung: Whether it lives and does not do what it is told. It is taken back once, as it would hold up others
                again and again; then only if it begins with nothing written down.
        """
        self.away[agent] = why
        self._hung[agent] += is_hung
        self.back.discard(agent)
        self._mail.forget(agent)

    def hear(self, agent: str, letter: Here, *, has_orders: bool) -> None:
        """Note that one runs.

        Args:
            agent: Which.
            letter: That says so.
            has_orders: Whether it had said that it has some order, and so had it written down.
        """
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
        """Note that one cannot be taken in."""
        self.away[agent] = why
        self.back.discard(agent)

    def admit(self, agent: str) -> None:
        """Note that one is in again."""
        del self.away[agent]
        self.back.discard(agent)
        self.forgetful.discard(agent)
        self._quiet[agent] = 0.0

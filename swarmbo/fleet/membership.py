"""Members of a fleet as its hub sees them: present, silent, failed and returning agents."""

import math
from collections import Counter
from collections.abc import Collection, Mapping

from swarmbo.coordination.schema import refusals_text
from swarmbo.errors import TransportError
from swarmbo.fleet.mailbox import Mailbox
from swarmbo.fleet.messages import Heartbeat, Ping
from swarmbo.fleet.plan import Plan

# seconds of waiting for an agent without any arrival: a person may have to go there and start it
JOIN_TIMEOUT_S = 600.0
_START_TIMEOUT_S = 120.0  # that a process on this machine may take to start
_MOST_HANGS = 2  # times that an agent may hang before it stays out


class Membership:
    """Policy of the hub for silent agents, which are pinged after half of the patience.

    If an agent is silent for the patience, in lockstep the run ends, and with a deadline the agent has failed. Before
    its first message, it has ten minutes. In lockstep, the run also ends if agents send only receipts for the patience.
    Agents in ``local`` have processes on this machine; ``ended`` has the reason for each that ended for good.

    ``absent`` has the reason for each failed agent, ``without_journal`` those that lost their journals. Live agents
    that carry out no order for ``longest_wait_s`` count as failed.
    """

    def __init__(
        self, plan: Plan, agents: Collection[str], mailbox: Mailbox, local: Collection[str], ended: Mapping[str, str]
    ) -> None:
        self._patience_s, self._tolerates_failures = plan.patience_s, plan.tolerates_failures
        self._agents, self._mailbox = tuple(agents), mailbox
        self._local = frozenset(local) if plan.tolerates_failures else frozenset[str]()
        self._ended = ended
        self.absent, self._running_again, self.without_journal = dict[str, str](), set[str](), set[str]()
        self._hangs, self._noted_ends = Counter[str](), set[str]()
        self._arrivals, self._n_pings = Counter[str](), 0
        self._silence_s, self._idle_s = dict[str, float](), 0.0
        self._nonces: dict[str, set[bytes]] = {}
        self.longest_wait_s = JOIN_TIMEOUT_S + 10.0 * plan.patience_s if plan.tolerates_failures else math.inf

    @property
    def present(self) -> tuple[str, ...]:
        """Present agents."""
        return tuple(agent for agent in self._agents if agent not in self.absent)

    @property
    def returning(self) -> tuple[str, ...]:
        """Agents that run again, and are not readmitted yet."""
        return tuple(agent for agent in self._agents if agent in self._running_again)

    def reset_silence(self) -> None:
        """Restart all times of silence when waiting begins: before, agents had no orders to answer."""
        self._silence_s, self._idle_s = dict.fromkeys(self._agents, 0.0), 0.0

    def check(self, seconds: float, waited_for: str, missing: Collection[str], refused: Mapping[str, int]) -> None:
        """After ``seconds`` more without arrivals, mark silent agents as failed, or raise if all agents are needed."""
        unacknowledged = {recipient for recipient, _ in self._mailbox.unacknowledged}
        needed = [agent for agent in self._agents if agent in unacknowledged or agent in missing]
        failed = dict[str, float]()
        for agent in self.present if self._tolerates_failures else needed:
            if agent in self._ended and agent not in self._noted_ends:
                self._noted_ends.add(agent)
                self.mark_failed(agent, self._ended[agent])
                continue
            arrivals, patience_s = self._mailbox.arrivals[agent], self._patience_s
            is_silent = arrivals == self._arrivals[agent]
            silence_s = self._silence_s.get(agent, 0.0) + seconds if is_silent else 0.0
            self._arrivals[agent], self._silence_s[agent] = arrivals, silence_s
            if not arrivals:
                patience_s = max(_START_TIMEOUT_S if agent in self._local else JOIN_TIMEOUT_S, patience_s)
            if agent in unacknowledged and silence_s > patience_s:
                failed[agent] = silence_s
            elif agent not in unacknowledged and silence_s > patience_s / 2.0:
                self._n_pings += 1
                self._mailbox.send(agent, Ping(self._n_pings))
        if self._tolerates_failures:
            for agent, silence_s in failed.items():
                self.mark_failed(agent, f"received nothing of it for {silence_s:.0f} s")
            return
        if not seconds:
            self._idle_s = 0.0
        elif not unacknowledged:  # agents that ignore orders send receipts, and nothing new
            self._idle_s += seconds
        if failed or self._idle_s > self._patience_s:
            got = f"received nothing {'' if failed else 'new '}from {list(failed) or needed}"
            wanted = f"{waited_for}: do they run, with this plan and their journals, and can all reach one another?"
            longest_s = max(failed.values(), default=self._idle_s)
            raise TransportError(f"{got} for {longest_s:.0f} s; wanted {wanted}{refusals_text(refused)}")

    def mark_failed(self, agent: str, reason: str, *, is_hung: bool = False) -> None:
        """Record that an agent failed, and cancel messages to it. ``is_hung``: it runs, but does not carry out orders.
        It could delay others repeatedly, so it is readmitted once, and after that only with an empty journal.
        """
        self.absent[agent] = reason
        self._hangs[agent] += is_hung
        self._running_again.discard(agent)
        self._mailbox.cancel(agent)

    def note_heartbeat(self, agent: str, heartbeat: Heartbeat, *, has_orders: bool) -> None:
        """Record that an agent runs; ``has_orders``: it acknowledged an order before, and so has a journal."""
        if not self._tolerates_failures:  # others wait in any case
            return
        nonces = self._nonces.setdefault(agent, set())
        is_restart = bool(nonces) and heartbeat.nonce not in nonces
        nonces.add(heartbeat.nonce)
        if is_restart and heartbeat.has_empty_journal and has_orders:
            self.without_journal.add(agent)
            del self._hangs[agent]
            if agent not in self.absent:
                self.mark_failed(agent, "its journal is lost")
        if agent in self.absent and self._hangs[agent] < _MOST_HANGS:
            self._running_again.add(agent)

    def readmit(self, agent: str) -> None:
        """Record that an agent is readmitted."""
        del self.absent[agent]
        self._running_again.discard(agent)
        self.without_journal.discard(agent)
        self._silence_s[agent] = 0.0

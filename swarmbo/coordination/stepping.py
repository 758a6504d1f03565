"""Agents in one process, stepped until no message is under way."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from swarmbo.coordination.schema import said_of
from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, FaultyTransport, Transport


@runtime_checkable
class Ticking(Protocol):
    """An agent that ``run`` steps: a ``Participant``, a ``swarmbo.agent.Agent``, or one of your own.

    An agent with a true attribute ``keeps_time`` is ticked at every step, once no agent waits for a message under way.
    Its ``agreement`` is then the number of the present agreement, two for each decision.
    """

    @property
    def is_finished(self) -> bool:
        """True once it waits for no message."""
        ...

    def tick(self, now: float, inbox: Sequence[Envelope], /) -> list[Envelope]:
        """Process arrivals, and return messages to send; the first inbox is empty. Steps are the clock."""
        ...


def run(agents: Mapping[str, Ticking], transport: Transport, by_deadline: Transport | None = None) -> Traffic:
    """Step agents until no message is in transit.

    Args:
        agents: Agents by name; your own agents must fit :class:`Ticking`.
        transport: Transport that was opened for at least these agents.
        by_deadline: Transport for agents with a deadline, which may lose messages; None: ``transport``. Its steps are
            the ticks of the agents' clock, which starts for all agents at once. Open a transport with faults for the
            round of the first decision; it is opened again for each agreement, as in a team.

    Returns:
        Traffic of all messages sent.

    Raises:
        TransportError: If an agent waits for a message that is not in transit.
    """
    traffic = step(agents, transport, by_deadline)
    if unfinished := [name for name, agent in agents.items() if not agent.is_finished]:
        refused = Counter[str]()
        for agent in agents.values():
            refused.update(getattr(agent, "refused", {}))
        why = said_of(refused)
        raise TransportError(f"agent {unfinished[0]!r} still waits for messages, but none is in transit{why}")
    return traffic


def step(agents: Mapping[str, Ticking], transport: Transport, by_deadline: Transport | None = None) -> Traffic:
    """Step agents as ``run`` does, but return also if some agents still wait."""
    carriers = [transport] if by_deadline is None else [transport, by_deadline]
    before, now, is_clock_on = _sent(carriers), 0, False
    first: tuple[int, int] | None = None  # the first decision by a deadline, and its round
    held = dict[str, list[Envelope]]()  # inboxes of agents that keep time until their clock begins: each tick counts
    inboxes: Mapping[str, list[Envelope]] = {name: [] for name in agents}
    while inboxes:
        for name, inbox in inboxes.items():
            kept = _keeps_time(agents[name])
            for envelope in agents[name].tick(float(now), inbox):
                carriers[-1 if kept and _keeps_time(agents[name]) else 0].send(envelope)
        arrived, now = transport.deliver(), now + 1
        for name, inbox in arrived.items():
            held.setdefault(name, []).extend(inbox)
        timed = {name for name, agent in agents.items() if _keeps_time(agent)}
        bundles = by_deadline.deliver() if timed and is_clock_on and by_deadline is not None else {}
        was_on, is_clock_on = is_clock_on, bool(timed) and (is_clock_on or timed.issuperset(arrived))
        if isinstance(by_deadline, FaultyTransport) and is_clock_on and not was_on:
            decision = max(getattr(agents[name], "agreement", 0) for name in timed) // 2
            if first is None:
                first = decision, by_deadline.round
            else:
                by_deadline.renew(first[1] + decision - first[0])
        due = held.keys() | bundles.keys() | timed if is_clock_on else held.keys() - timed
        inboxes = {name: [*held.pop(name, ()), *bundles.get(name, ())] for name in agents if name in due}
    return _sent(carriers) - before


def _sent(carriers: Iterable[Transport]) -> Traffic:
    return sum((carrier.traffic for carrier in carriers), Traffic())


def _keeps_time(agent: Ticking) -> bool:
    return bool(getattr(agent, "keeps_time", False))

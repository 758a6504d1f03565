"""Helpers for tests of agents: recorded messages, saved and restored agents, traffic."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from swarmbo.agent import Agent, run
from swarmbo.records import Recommendation, Traffic
from swarmbo.transport import Envelope, InProcessTransport


class Recording(InProcessTransport):
    """A transport that records all delivered messages, step by step."""

    def __init__(self, routes: Any) -> None:
        super().__init__(routes)
        self.delivered: list[dict[str, list[Envelope]]] = []

    def deliver(self) -> dict[str, list[Envelope]]:
        self.delivered.append(super().deliver())
        return self.delivered[-1]


def copied(agent: Agent, **own: Any) -> Agent:
    """The same agent, restored from JSON and arrays, and from arguments that a state does not contain."""
    state = agent.state_dict()
    plain = json.loads(json.dumps(state["json"]))
    return Agent.from_state_dict({"json": plain, "arrays": dict(state["arrays"])}, **own)


def ticked_to_the_end(
    case: Any, saved_at: int, again: Callable[[str, Agent], Agent] = lambda name, agent: copied(agent)
) -> int:
    """Tick a case's agents until no message is in transit; save and restore all at one tick. Returns the ticks."""
    ticks, inboxes = 0, {name: list[Envelope]() for name in case.agents}
    while inboxes:
        for name, inbox in inboxes.items():
            if ticks == saved_at:
                case.agents = {other: again(other, agent) for other, agent in case.agents.items()}
            for envelope in case.agents[name].tick(float(ticks), inbox):
                case.transport.send(envelope)
            ticks += 1
        inboxes = case.transport.deliver()
    return ticks


def require_same_messages(case: Any, agent: Agent) -> None:
    """With the same inboxes, an agent must send and decide the same as the case's agent of its name."""
    delivered, name = case.transport.delivered, agent.name
    sent = agent.tick(0.0) + [e for step in delivered for e in agent.tick(1.0, step.get(name, []))]
    assert sorted(sent) == sorted(e for step in delivered for inbox in step.values() for e in inbox if e.sender == name)
    assert agent.decision() == case.agents[name].decision()


def recommended_by(agents: Mapping[str, Any], transport: Any) -> list[Recommendation | None]:
    """Recommendations of all agents, in order."""
    for agent in agents.values():
        agent.recommend()
    run(agents, transport)
    return [agent.recommended() for agent in agents.values()]


def sent_by(agents: Mapping[str, Any]) -> dict[str, Traffic]:
    """Traffic of all agents for the last decision, by purpose."""
    total: dict[str, Traffic] = {}
    for agent in agents.values():
        for purpose, traffic in agent.sent.items():
            total[purpose] = total.get(purpose, Traffic()) + traffic
    return total

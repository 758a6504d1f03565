"""Helpers of tests of agents: messages that are kept and counted, agents that are saved and come back."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from swarmbo.agent import Agent, run
from swarmbo.records import Recommendation, Traffic
from swarmbo.transport import Envelope, InProcessTransport


class Recording(InProcessTransport):
    """Keeps what was handed over, step by step."""

    def __init__(self, routes: Any) -> None:
        super().__init__(routes)
        self.handed: list[dict[str, list[Envelope]]] = []

    def deliver(self) -> dict[str, list[Envelope]]:
        self.handed.append(super().deliver())
        return self.handed[-1]


def copied(agent: Agent, **own: Any) -> Agent:
    """The same agent, from JSON and arrays, and what no state holds."""
    state = agent.state_dict()
    plain = json.loads(json.dumps(state["json"]))
    return Agent.from_state_dict({"json": plain, "arrays": dict(state["arrays"])}, **own)


def ticked_to_the_end(
    case: Any, saved_at: int, again: Callable[[str, Agent], Agent] = lambda name, agent: copied(agent)
) -> int:
    """Tick a case's agents in turn until nothing is under way, all saved and brought back at one tick; how many."""
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


def require_same_words(case: Any, agent: Agent) -> None:
    """An agent that was asked says and decides what the case's of its name did, when the same arrives."""
    handed, name = case.transport.handed, agent.name
    said = agent.tick(0.0) + [e for step in handed for e in agent.tick(1.0, step.get(name, []))]
    assert sorted(said) == sorted(e for step in handed for inbox in step.values() for e in inbox if e.sender == name)
    assert agent.decision() == case.agents[name].decision()


def recommended_by(agents: Mapping[str, Any], transport: Any) -> list[Recommendation | None]:
    """Recommendations of agents, one after the other."""
    for agent in agents.values():
        agent.recommend()
    run(agents, transport)
    return [agent.recommended() for agent in agents.values()]


def sent_by(agents: Mapping[str, Any]) -> dict[str, Traffic]:
    """Messages of all agents for the last decision, by purpose."""
    took: dict[str, Traffic] = {}
    for agent in agents.values():
        for purpose, traffic in agent.sent.items():
            took[purpose] = took.get(purpose, Traffic()) + traffic
    return took

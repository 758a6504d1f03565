"""What tests of agents have in common: messages that are kept, and agents that are saved and come back."""

import json
from typing import Any

from swarmbo.agent import Agent
from swarmbo.transport import Envelope, InProcessTransport


class Recording(InProcessTransport):
    """Keeps what was handed over, step by step."""

    def __init__(self, routes: Any) -> None:
        super().__init__(routes)
        self.handed: list[dict[str, list[Envelope]]] = []

    def deliver(self) -> dict[str, list[Envelope]]:
        self.handed.append(super().deliver())
        return self.handed[-1]


def copied(agent: Agent) -> Agent:
    """The same agent, from JSON and arrays."""
    state = agent.state_dict()
    return Agent.from_state_dict({"json": json.loads(json.dumps(state["json"])), "arrays": dict(state["arrays"])})

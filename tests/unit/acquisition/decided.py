"""What a team decides in a situation, as its learner has it decided."""

from typing import Any

from swarmbo.acquisition import Decision, Situation
from swarmbo.deciding.central_driver import CentralDriver, Words
from swarmbo.deciding.places import place_steps
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess, Routes


def decide(situation: Situation, acquisition: Any, coordination: Any, transport: InProcess) -> Decision:
    """Where everybody measures next."""
    steps = place_steps(situation, acquisition, coordination)
    return driver(situation, coordination, transport).run(steps)


def driver(situation: Situation, coordination: Any, transport: InProcess) -> CentralDriver:
    """A driver that counts what agents with a factor each would send."""
    agents = situation.agents
    graph = FactorGraph.from_scopes({f"of {a}": [a] for a in agents}, variable_owners={a: a for a in agents})
    words = Words(graph, Routes(agents, situation.links, has_base=True))
    return CentralDriver(coordination, transport, situation.round, words)

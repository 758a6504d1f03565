"""What a team decides in a situation, as its learner has it decided."""

from typing import Any

from swarmbo.acquisition import Decision, Situation
from swarmbo.deciding.central_driver import CentralDriver
from swarmbo.deciding.places import place_steps
from swarmbo.transport import InProcess


def decide(situation: Situation, acquisition: Any, coordination: Any, transport: InProcess) -> Decision:
    """Where everybody measures next."""
    steps = place_steps(situation, acquisition, coordination)
    return CentralDriver(coordination, transport, situation.round).run(steps)

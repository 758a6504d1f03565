"""What a team decides in a situation, as its learner has it decided."""

from typing import Any

from swarmbo.acquisition import Decision, Situation
from swarmbo.deciding.in_one_place import InOnePlace
from swarmbo.deciding.places import place_steps
from swarmbo.transport import InProcess


def decide(situation: Situation, acquisition: Any, coordination: Any, transport: InProcess) -> Decision:
    """Where everybody measures next."""
    steps = place_steps(situation, acquisition, coordination)
    return InOnePlace(coordination, transport, situation.round).run(steps)

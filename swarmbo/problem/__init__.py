"""What a team works on, where it must not ask, and what came of what it asked for."""

from swarmbo.problem.problem import OutcomeMode, Problem

__all__ = ["OutcomeMode", "Problem"]

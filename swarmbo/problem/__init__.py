"""Problem of a team, its no-go regions, and its data."""

from swarmbo.problem.problem import OutcomeMode, Problem

__all__ = ["OutcomeMode", "Problem"]

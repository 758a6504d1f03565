"""Problem of a team, its no-go regions, and its data."""

from swarmbo.problem.problem import OutcomeMode as OutcomeMode, Problem as Problem

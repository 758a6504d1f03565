"""Coordination: joint choices by message passing on factor graphs. Sees tables, never a GP."""

from swarmbo.coordination.exact_solver import Exact as Exact, exact as exact
from swarmbo.coordination.max_sum_solver import MaxSum as MaxSum, max_sum as max_sum
from swarmbo.coordination.refined_max_sum import RefinedMaxSum as RefinedMaxSum
from swarmbo.coordination.solution import Solution as Solution

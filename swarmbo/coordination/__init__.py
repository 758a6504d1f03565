"""Coordination: joint choices by message passing on factor graphs, from tables or functions, without any belief."""

from swarmbo.coordination.agreement import Solution as Solution
from swarmbo.coordination.methods.exact import Exact as Exact, exact as exact
from swarmbo.coordination.methods.local_search import DSA as DSA, MGM as MGM
from swarmbo.coordination.methods.max_sum import MaxSum as MaxSum, max_sum as max_sum

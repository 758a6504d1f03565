"""Coordination: joint choices by message passing on factor graphs. Sees tables, never a GP."""

from swarmbo.coordination.agreement import Solution as Solution
from swarmbo.coordination.methods.dsa import DSA as DSA
from swarmbo.coordination.methods.exact import Exact as Exact, exact as exact
from swarmbo.coordination.methods.max_sum import MaxSum as MaxSum, max_sum as max_sum
from swarmbo.coordination.methods.mgm import MGM as MGM
from swarmbo.coordination.methods.refined_dsa import RefinedDSA as RefinedDSA
from swarmbo.coordination.methods.refined_max_sum import RefinedMaxSum as RefinedMaxSum
from swarmbo.coordination.methods.refined_mgm import RefinedMGM as RefinedMGM

"""Checks of contracts, for tests of your own parts of a team.

Each check takes a function that makes a new part. It returns nothing on success, and raises AssertionError with the
violated claim otherwise. swarmbo's own parts pass these checks.
"""

from swarmbo.testing.belief import check_belief as check_belief
from swarmbo.testing.coordinator import check_coordinator as check_coordinator
from swarmbo.testing.environment import check_environment as check_environment
from swarmbo.testing.transport import check_transport as check_transport

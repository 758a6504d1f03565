"""Contracts of the parts of a team, for tests of users' own parts.

Each check takes a function that makes a new part, raises AssertionError with the violated claim, and returns nothing on
success. swarmbo's own parts pass them too.
"""

from swarmbo.testing.belief import check_belief as check_belief
from swarmbo.testing.coordinator import check_coordinator as check_coordinator
from swarmbo.testing.environment import check_environment as check_environment
from swarmbo.testing.transport import check_transport as check_transport

"""The contracts that parts of a team keep, to be checked by whoever makes one: call these from your own tests.

Each check takes a function that makes the part anew, raises AssertionError with what is wrong, and returns nothing
where all is well. swarmbo's own parts pass them too.
"""

from swarmbo.testing.belief import check_belief as check_belief
from swarmbo.testing.coordinator import check_coordinator as check_coordinator
from swarmbo.testing.environment import check_environment as check_environment
from swarmbo.testing.transport import check_transport as check_transport

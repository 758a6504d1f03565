"""swarmbo: agents in simulated worlds agree by message passing on where to measure next.

Names are loaded when they are first used, so that ``import swarmbo`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from swarmbo.acquisition import DBGPUCB as DBGPUCB
    from swarmbo.baselines import (
        Greedy as Greedy,
        Independent as Independent,
        LawnMower as LawnMower,
        Random as Random,
    )
    from swarmbo.belief import ExactGP as ExactGP, ExactGPSettings as ExactGPSettings
    from swarmbo.coordination import (
        Exact as Exact,
        MaxSum as MaxSum,
        Solution as Solution,
        exact as exact,
        max_sum as max_sum,
    )
    from swarmbo.errors import SwarmboError as SwarmboError
    from swarmbo.graph import FactorGraph as FactorGraph
    from swarmbo.records import Query as Query, Recommendation as Recommendation, SolveReport as SolveReport
    from swarmbo.spaces import Domain as Domain
    from swarmbo.team import Team as Team
    from swarmbo.transport import InProcess as InProcess

_HOME = {
    "DBGPUCB": "acquisition",
    "Domain": "spaces",
    "Exact": "coordination",
    "ExactGP": "belief",
    "ExactGPSettings": "belief",
    "FactorGraph": "graph",
    "Greedy": "baselines",
    "InProcess": "transport",
    "Independent": "baselines",
    "LawnMower": "baselines",
    "MaxSum": "coordination",
    "Query": "records",
    "Random": "baselines",
    "Recommendation": "records",
    "Solution": "coordination",
    "SolveReport": "records",
    "SwarmboError": "errors",
    "Team": "team",
    "exact": "coordination",
    "max_sum": "coordination",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'swarmbo' has no attribute {name!r}")
    value = getattr(import_module(f"swarmbo.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])

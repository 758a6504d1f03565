"""swarmbo: agents in simulated worlds agree by message passing on where to measure next.

Names are loaded when they are first used, so that ``import swarmbo`` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from swarmbo import testing as testing
    from swarmbo.acquisition import (
        DBGPUCB as DBGPUCB,
        DECHBO as DECHBO,
        EGPEI as EGPEI,
        EGPTS as EGPTS,
        AddGPUCB as AddGPUCB,
        Auto as Auto,
        BeliefFunctions as BeliefFunctions,
        DuMBO as DuMBO,
        ExpectedImprovement as ExpectedImprovement,
        Information as Information,
        JointAcquisition as JointAcquisition,
        Restarts as Restarts,
        Straddle as Straddle,
        Thompson as Thompson,
        TrustBox as TrustBox,
    )
    from swarmbo.baselines import (
        CMAES as CMAES,
        AxDefault as AxDefault,
        BoTorchLogNEI as BoTorchLogNEI,
        Centralised as Centralised,
        Greedy as Greedy,
        Independent as Independent,
        IsotropicGP as IsotropicGP,
        LawnMower as LawnMower,
        OptunaGP as OptunaGP,
        OptunaTPE as OptunaTPE,
        Random as Random,
        Sobol as Sobol,
        Turbo1 as Turbo1,
    )
    from swarmbo.belief import (
        ExactGP as ExactGP,
        ExactGPSettings as ExactGPSettings,
        TimeAxis as TimeAxis,
        TimeCorrelation as TimeCorrelation,
    )
    from swarmbo.belief.additive import (
        AdditiveGP as AdditiveGP,
    )
    from swarmbo.belief.additive_settings import (
        AdditiveGPSettings as AdditiveGPSettings,
    )
    from swarmbo.belief.ensemble_settings import (
        EnsembleSettings as EnsembleSettings,
    )
    from swarmbo.belief.fusion import (
        FusedSettings as FusedSettings,
    )
    from swarmbo.belief.structure import (
        RandomBlocks as RandomBlocks,
        RandomForest as RandomForest,
        SampledStructure as SampledStructure,
        ScreenedScopes as ScreenedScopes,
    )
    from swarmbo.belief.warping import (
        Warp as Warp,
    )
    from swarmbo.coordination import (
        Exact as Exact,
        MaxSum as MaxSum,
        Solution as Solution,
        exact as exact,
        max_sum as max_sum,
    )
    from swarmbo.coordination.admm import (
        ADMM as ADMM,
    )
    from swarmbo.coordination.agreement import (
        Agreement as Agreement,
    )
    from swarmbo.coordination.refined_max_sum import (
        RefinedMaxSum as RefinedMaxSum,
    )
    from swarmbo.errors import (
        SwarmboError as SwarmboError,
    )
    from swarmbo.field_team import (
        FieldTeam as FieldTeam,
    )
    from swarmbo.graph import (
        FactorGraph as FactorGraph,
    )
    from swarmbo.kernels import (
        register_kernel as register_kernel,
    )
    from swarmbo.records import (
        PointQuery as PointQuery,
        PointRecommendation as PointRecommendation,
        Query as Query,
        Recommendation as Recommendation,
        SolveReport as SolveReport,
    )
    from swarmbo.spaces import (
        Domain as Domain,
    )
    from swarmbo.team import (
        Team as Team,
    )
    from swarmbo.transport import (
        InProcess as InProcess,
    )

_HOME = {
    "ADMM": "coordination.admm",
    "AddGPUCB": "acquisition",
    "AdditiveGP": "belief.additive",
    "AdditiveGPSettings": "belief.additive_settings",
    "Agreement": "coordination.agreement",
    "Auto": "acquisition",
    "AxDefault": "baselines",
    "BeliefFunctions": "acquisition",
    "BoTorchLogNEI": "baselines",
    "CMAES": "baselines",
    "Centralised": "baselines",
    "DBGPUCB": "acquisition",
    "DECHBO": "acquisition",
    "Domain": "spaces",
    "DuMBO": "acquisition",
    "EGPEI": "acquisition",
    "EGPTS": "acquisition",
    "EnsembleSettings": "belief.ensemble_settings",
    "Exact": "coordination",
    "ExactGP": "belief",
    "ExactGPSettings": "belief",
    "ExpectedImprovement": "acquisition",
    "FactorGraph": "graph",
    "FieldTeam": "field_team",
    "FusedSettings": "belief.fusion",
    "Greedy": "baselines",
    "InProcess": "transport",
    "Independent": "baselines",
    "Information": "acquisition",
    "IsotropicGP": "baselines",
    "JointAcquisition": "acquisition",
    "LawnMower": "baselines",
    "MaxSum": "coordination",
    "OptunaGP": "baselines",
    "OptunaTPE": "baselines",
    "PointQuery": "records",
    "PointRecommendation": "records",
    "Query": "records",
    "Random": "baselines",
    "RandomBlocks": "belief.structure",
    "RandomForest": "belief.structure",
    "Recommendation": "records",
    "RefinedMaxSum": "coordination.refined_max_sum",
    "Restarts": "acquisition",
    "SampledStructure": "belief.structure",
    "ScreenedScopes": "belief.structure",
    "Sobol": "baselines",
    "Solution": "coordination",
    "SolveReport": "records",
    "Straddle": "acquisition",
    "SwarmboError": "errors",
    "Team": "team",
    "Thompson": "acquisition",
    "TimeAxis": "belief",
    "TimeCorrelation": "belief",
    "TrustBox": "acquisition",
    "Turbo1": "baselines",
    "Warp": "belief.warping",
    "exact": "coordination",
    "max_sum": "coordination",
    "register_kernel": "kernels",
}

_ROOMS = ("testing",)  # modules that are public as a whole


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"swarmbo.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'swarmbo' has no attribute {name!r}")
    value = getattr(import_module(f"swarmbo.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, *_ROOMS, "__version__"])

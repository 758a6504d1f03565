"""The public names of swarmbo, each once, with the module that it is loaded from when it is first used."""

from swarmbo import testing as testing
from swarmbo.acquisition import (
    DBGPUCB as DBGPUCB,
    DECHBO as DECHBO,
    EGPEI as EGPEI,
    EGPTS as EGPTS,
    Acquisition as Acquisition,
    AddGPUCB as AddGPUCB,
    Auto as Auto,
    BeliefFunctions as BeliefFunctions,
    ChainAcquisition as ChainAcquisition,
    Decision as Decision,
    DuMBO as DuMBO,
    ExpectedImprovement as ExpectedImprovement,
    Information as Information,
    LocalUtility as LocalUtility,
    Restarts as Restarts,
    Straddle as Straddle,
    TargetedVariance as TargetedVariance,
    Thompson as Thompson,
    TrustRegion as TrustRegion,
)
from swarmbo.agent import (
    Agent as Agent,
    RemoteAgent as RemoteAgent,
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
from swarmbo.belief.features.ensemble_settings import (
    EnsembleSettings as EnsembleSettings,
)
from swarmbo.belief.fusion import (
    FusedSettings as FusedSettings,
)
from swarmbo.belief.gp.additive import (
    AdditiveGP as AdditiveGP,
)
from swarmbo.belief.gp.additive_settings import (
    AdditiveGPSettings as AdditiveGPSettings,
    SampledStructure as SampledStructure,
    ScreenedScopes as ScreenedScopes,
)
from swarmbo.belief.model.warping import (
    Warp as Warp,
)
from swarmbo.coordination import (
    DSA as DSA,
    MGM as MGM,
    Exact as Exact,
    MaxSum as MaxSum,
    Solution as Solution,
    exact as exact,
    max_sum as max_sum,
)
from swarmbo.coordination.agreement import (
    Agreement as Agreement,
)
from swarmbo.coordination.methods.admm import (
    ADMM as ADMM,
)
from swarmbo.coordination.methods.refined import (
    RefinedDSA as RefinedDSA,
    RefinedMaxSum as RefinedMaxSum,
    RefinedMGM as RefinedMGM,
)
from swarmbo.errors import (
    SwarmboError as SwarmboError,
)
from swarmbo.graph import (
    FactorGraph as FactorGraph,
)
from swarmbo.kernels import (
    register_kernel as register_kernel,
)
from swarmbo.problem import (
    Problem as Problem,
)
from swarmbo.problem.constraints import (
    Constraint as Constraint,
    Linear as Linear,
    Separation as Separation,
)
from swarmbo.problem.no_go import (
    NoGoBall as NoGoBall,
    NoGoBox as NoGoBox,
    NoGoPolygon as NoGoPolygon,
)
from swarmbo.records import (
    Query as Query,
    Recommendation as Recommendation,
    SolveReport as SolveReport,
)
from swarmbo.routing import (
    Routes as Routes,
)
from swarmbo.runs.reading import (
    Run as Run,
    load_run as load_run,
)
from swarmbo.spaces import (
    Domain as Domain,
)
from swarmbo.spaces.variables import (
    Categorical as Categorical,
    Integer as Integer,
    Real as Real,
)
from swarmbo.team import (
    Team as Team,
)
from swarmbo.transport import (
    Faults as Faults,
    InProcess as InProcess,
)

__version__: str

def homes() -> dict[str, str]: ...

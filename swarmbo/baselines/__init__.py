"""Baselines behind the interface of coordination methods: simple rules and optimisers of other packages."""

from swarmbo.baselines.centralised import Centralised as Centralised
from swarmbo.baselines.one_outcome import IsotropicGP as IsotropicGP, Random as Random, Sobol as Sobol
from swarmbo.baselines.peers import (
    CMAES as CMAES,
    AxDefault as AxDefault,
    BoTorchLogNEI as BoTorchLogNEI,
    OptunaGP as OptunaGP,
    OptunaTPE as OptunaTPE,
)
from swarmbo.baselines.planners import Greedy as Greedy, Independent as Independent, LawnMower as LawnMower
from swarmbo.baselines.turbo import Turbo1 as Turbo1

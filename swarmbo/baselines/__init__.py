"""What a user would do instead of coordinating, and what others have built: the same interface, no bargaining."""

from swarmbo.baselines.ax_default import AxDefault as AxDefault
from swarmbo.baselines.botorch_log_nei import BoTorchLogNEI as BoTorchLogNEI
from swarmbo.baselines.centralised import Centralised as Centralised
from swarmbo.baselines.cma_es import CMAES as CMAES
from swarmbo.baselines.greedy import Greedy as Greedy
from swarmbo.baselines.independent import Independent as Independent
from swarmbo.baselines.isotropic_gp import IsotropicGP as IsotropicGP
from swarmbo.baselines.lawn_mower import LawnMower as LawnMower
from swarmbo.baselines.optuna_samplers import OptunaGP as OptunaGP, OptunaTPE as OptunaTPE
from swarmbo.baselines.random import Random as Random
from swarmbo.baselines.sobol import Sobol as Sobol
from swarmbo.baselines.turbo import Turbo1 as Turbo1

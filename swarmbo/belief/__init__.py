"""What the team thinks the field, or the function it tunes, is."""

from swarmbo.belief.additive import AdditiveGP as AdditiveGP
from swarmbo.belief.additive_settings import (
    AdditiveGPSettings as AdditiveGPSettings,
    AdditiveHyperparameters as AdditiveHyperparameters,
    FactorPrior as FactorPrior,
)
from swarmbo.belief.cache import PosteriorCache as PosteriorCache
from swarmbo.belief.ensemble_settings import EnsembleSettings as EnsembleSettings
from swarmbo.belief.exact import ExactGP as ExactGP
from swarmbo.belief.hyperparameters import (
    ExactGPSettings as ExactGPSettings,
    Hyperparameters as Hyperparameters,
    TimeAxis as TimeAxis,
    TimeCorrelation as TimeCorrelation,
)
from swarmbo.belief.local_posterior import Moments as Moments
from swarmbo.belief.path_sample import PathSample as PathSample
from swarmbo.belief.view_means import means_by_agent as means_by_agent
from swarmbo.belief.views import PlaceBelief as PlaceBelief, Views as Views, view_of as view_of
from swarmbo.belief.warping import Warp as Warp, WarpKind as WarpKind

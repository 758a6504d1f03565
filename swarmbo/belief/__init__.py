"""Beliefs of a team about a field, or about a function."""

from swarmbo.belief.at_places import means_by_agent as means_by_agent, quick_at as quick_at
from swarmbo.belief.gp.additive import AdditiveGP as AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings as AdditiveGPSettings, FactorPrior as FactorPrior
from swarmbo.belief.gp.exact import ExactGP as ExactGP
from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters as AdditiveHyperparameters,
    ExactGPSettings as ExactGPSettings,
    Hyperparameters as Hyperparameters,
    TimeAxis as TimeAxis,
    TimeCorrelation as TimeCorrelation,
)
from swarmbo.belief.gp.spatial import (
    PlaceBelief as PlaceBelief,
    Views as Views,
    has_view as has_view,
    view_of as view_of,
)
from swarmbo.belief.model.warping import Warp as Warp

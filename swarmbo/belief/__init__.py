"""What the team thinks the field is."""

from swarmbo.belief.cache import PosteriorCache as PosteriorCache
from swarmbo.belief.exact import ExactGP as ExactGP
from swarmbo.belief.hyperparameters import ExactGPSettings as ExactGPSettings, Hyperparameters as Hyperparameters

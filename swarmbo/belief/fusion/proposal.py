"""Settings of local beliefs, and what agents must share before they can add estimates."""

from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec

from swarmbo.belief.features.feature_gp import FeatureBasis
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, Hyperparameters
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count, Settings, Share, require

FusionMethod = Literal["readings", "consensus", "covariance-intersection", "experts"]


@kind("belief", FIELD)
class FusedSettings(Settings, frozen=True, tag_field="kind", tag="fused"):
    """Local beliefs of agents in a field, each from its agent's measurements and its neighbours' messages.

    Args:
        method: ``readings``: agents flood tagged measurements, and each has an exact process of all that it received.
            ``experts``: the same messages, with a committee of one exact process per author, which needs less
            computation. Two methods serve for comparison: ``consensus`` (robust push-sum) and
            ``covariance-intersection`` (untagged estimates). Results: docs/studies/fusion.md.
        n_features: Size of the basis, an even number from 2 to 2048. A message has about n_features² / 2 numbers.
            ``readings`` and ``experts`` have no basis.
        steps: Number of steps, >= 1, in which neighbours exchange messages after each round of measurements.
        loss: Share of these messages that a link loses, from 0 to below 1, independently in each direction. Faults of
            the team's transport are added.
        growth: Factor > 1 by which the number of measurements grows between two proposals of fitted hyper-parameters. A
            proposal invalidates all estimates sent before, so it should be rare.
        prior: Kernel, priors of hyper-parameters, and effort of a fit. ``refit_every`` has no effect here.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], belief=sb.FusedSettings(steps=5))
        >>> team.tell(team.ask(), {"a": 1.0, "b": 2.0})
        >>> {name: agent.reached for name, agent in team.belief.agents.items()}  # measurements by their author
        {'a': {'a': 1.0, 'b': 1.0}, 'b': {'a': 1.0, 'b': 1.0}}
    """

    method: FusionMethod = "readings"
    n_features: Annotated[int, msgspec.Meta(ge=2, le=2048, multiple_of=2, title="an even integer")] = 128
    steps: Count = 20
    loss: Share = 0.0
    growth: Annotated[float, msgspec.Meta(gt=1)] = 1.5
    prior: ExactGPSettings = ExactGPSettings()


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A basis of features with the noise and the unit of outcomes.

    Every message carries the stamp of the sender's proposal, and the proposal itself if the recipient holds another. An
    agent adopts a proposal that supersedes its own, and summarises its measurements again. Two agents that propose at
    the same time use the same version; then the alphabetically first name wins everywhere. If one name has made both
    proposals (after a loss of state), the smaller stamp wins. Version 0 is the initial proposal of all agents.
    """

    version: int
    proposer: str
    hyperparameters: Hyperparameters
    seed: int
    n_features: int
    n_measurements: int = 0

    def __post_init__(self) -> None:
        require(self, "version", lambda value: value >= 0, "an integer >= 0")
        require(self, "seed", lambda value: value >= 0, "an integer >= 0")
        noise_variance = self.hyperparameters.noise_variance
        require(self, "hyperparameters", lambda _: noise_variance > 0.0, "a noise variance > 0")
        require(self, "n_features", lambda v: 2 <= v <= 2048 and v % 2 == 0, "an even integer from 2 to 2048")

    def supersedes(self, other: "Proposal") -> bool:
        """True if an agent with the other proposal must adopt this one."""
        return (-self.version, self.proposer, self.stamp) < (-other.version, other.proposer, other.stamp)

    @property
    @lru_cache(maxsize=64)  # noqa: B019  proposals with equal content share an entry
    def stamp(self) -> bytes:
        """Eight bytes that differ between proposals."""
        return blake2b(msgspec.msgpack.encode(self), digest_size=8).digest()

    @property
    def basis(self) -> FeatureBasis:
        """Basis; equal for equal proposals."""
        return FeatureBasis.create(self.seed, self.hyperparameters.prior, self.n_features)

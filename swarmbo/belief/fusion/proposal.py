"""Basis and hyper-parameters that agents must share before they can add estimates."""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from swarmbo.belief.features.feature_basis import FeatureBasis
from swarmbo.belief.features.feature_gp import basis_of
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.settings import require


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A basis of features with the noise and the unit of outcomes.

    Every message carries the stamp of the sender's proposal, and the proposal itself if the recipient holds another. An
    agent adopts a proposal that supersedes its own, and summarises its measurements again. Two agents that propose at
    once use one version number; then the alphabetically first name wins everywhere. Of two proposals of one name (after
    a loss of state) the smaller stamp wins. Version 0 is the initial proposal of all agents.
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
    def stamp(self) -> bytes:
        """Eight bytes that differ between proposals."""
        return _stamp(self)

    @property
    def basis(self) -> FeatureBasis:
        """Basis; equal for equal proposals."""
        return _basis(self.seed, self.hyperparameters, self.n_features)


@lru_cache(maxsize=64)
def _stamp(proposal: Proposal) -> bytes:
    return blake2b(msgspec.msgpack.encode(proposal), digest_size=8).digest()


@lru_cache(maxsize=64)
def _basis(seed: int, h: Hyperparameters, n_features: int) -> FeatureBasis:
    return basis_of(h, n_features, seed)

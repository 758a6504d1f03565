"""The basis and hyper-parameters that agents share before their estimates can be added up."""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from swarmbo.belief.features.feature_basis import FeatureBasis
from swarmbo.belief.features.feature_gp import basis_of
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.settings import require


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A basis of features with the noise and the unit of outcomes that go with it.

    Every message carries the stamp of the one that its sender holds, and the whole of it where the recipient holds
    another. Who hears of one that supersedes its own adopts it and summarises its readings anew. Two agents that
    propose at once use one version number; then the name that comes first in the alphabet wins, everywhere, and of two
    proposals of one name (which has lost its state in between) the smaller stamp.

    Args:
        version: >= 0; 0 is what all agents were started with.
        proposer: Name of the agent that proposed it.
        hyperparameters: Kernel, scales, noise variance > 0, mean, offset and scale of outcomes.
        seed: Of the basis.
        n_features: Size of the basis, an even number from 2 to 2048.
        n_measurements: How many readings it was fitted to.

    Example:
        >>> h = Hyperparameters("rbf", (0.2,), 1.0, 0.01)
        >>> first, second = Proposal(1, "b", h, 0, 20), Proposal(1, "a", h, 5, 20)
        >>> second.supersedes(first), first.supersedes(first)
        (True, False)
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
        """Whether an agent that holds the other one shall adopt this one."""
        return (-self.version, self.proposer, self.stamp) < (-other.version, other.proposer, other.stamp)

    @property
    def stamp(self) -> bytes:
        """Eight bytes that differ wherever proposals do."""
        return _stamp(self)

    @property
    def basis(self) -> FeatureBasis:
        """The basis; whoever holds equal proposals gets equal ones."""
        return _basis(self.seed, self.hyperparameters, self.n_features)


@lru_cache(maxsize=64)
def _stamp(proposal: Proposal) -> bytes:
    return blake2b(msgspec.msgpack.encode(proposal), digest_size=8).digest()


@lru_cache(maxsize=64)
def _basis(seed: int, h: Hyperparameters, n_features: int) -> FeatureBasis:
    return basis_of(h, n_features, seed)

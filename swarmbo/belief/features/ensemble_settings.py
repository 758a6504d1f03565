"""Settings of an ensemble of Gaussian processes, and the fitted state of its members."""

from typing import Literal, get_args

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, FactorHyperparameters
from swarmbo.kernels import KernelName, require_kernel
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Even, Fraction, NonNegative, Positive, Settings, require

FittedLengthscales = Literal["fitted", "shared"]
_SHORTEST, _LONGEST = 1e-9, 1e9


@kind("belief", FUNCTION)
class EnsembleSettings(Settings, frozen=True, tag_field="kind", tag="ensemble"):
    """Settings of an ensemble of Gaussian processes, weighted by their predictions of the outcomes.

    There is one member for every pair of a kernel and a lengthscale. Variances are relative to the variance of the
    outcomes; their priors are log-normal. The paper has two ensembles. One has several kernels with ``lengthscales =
    ["fitted", "shared"]``. The other has ``kernels = ["rbf"]`` with lengthscales 1e-4, 1e-3, … 1e6. Both have
    ``n_features = 100`` and ``refit_every = 50``.

    Source: Lu, Polyzos, Li & Giannakis 2022 (EGP-TS), sections 4.1 and 6, appendix E.

    Args:
        kernels: Covariance functions; your own kernel needs ``frequencies``.
        lengthscales: Lengthscales of a factor of one variable, as shares of the domain's sides, from 1e-9 to 1e9; for d
            variables they are multiplied by √d. ``fitted``: by maximum a posteriori, as in ``additive``; with outcomes
            per factor, one per variable. ``shared``: fitted, one for all variables of factors that are weighted
            jointly.
        n_features: Number of random features of each factor in each member, even, >= 2.
        floor: Smallest weight of a member, >= 0 and less than 1 / number of members.
        refit_every: Number of evaluations, >= 1, after which members are fitted again, with new features.
        outputscale_log_std: Log standard deviation of the prior on each member's outputscale, > 0. Its median is 1.
        noise_median: Median > 0 of the prior on the noise variance.
        noise_log_std: Standard deviation of the noise variance's prior, in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].

    Example:
        >>> import swarmbo as sb
        >>> smooth_or_not = sb.EnsembleSettings(kernels=("rbf",), lengthscales=(0.01, 0.3), n_features=64)
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 12)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, belief=smooth_or_not, acquisition="egp-ts")
        >>> team.attach(x[:, None], np.sin(6.0 * x))
        >>> bool(team.model.ensemble.weights[0][1] > 0.99)  # weight of the member with the longer lengthscale
        True
    """

    kernels: tuple[KernelName, ...] = ("matern12", "matern32", "matern52", "rbf")
    lengthscales: tuple[float | FittedLengthscales, ...] = (0.1, 0.3, "fitted")
    n_features: Even = 512
    floor: NonNegative = 1e-4
    refit_every: Count = 10
    outputscale_log_std: Positive = 1.0
    noise_median: Positive = 1e-4
    noise_log_std: Positive = 1.5
    noise_floor: Fraction = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kernel(self, "kernels")
        for field in ("kernels", "lengthscales"):
            require(self, field, lambda v: len(v) > 0 and len(set(v)) == len(v), "at least one, and none twice")
        fitted, wanted = get_args(FittedLengthscales), "numbers from 1e-9 to 1e9, 'fitted' or 'shared'"
        is_length = [x in fitted if isinstance(x, str) else _SHORTEST <= x <= _LONGEST for x in self.lengthscales]
        require(self, "lengthscales", lambda _: all(is_length), wanted)
        size = len(self.kernels) * len(self.lengthscales)
        require(self, "floor", lambda v: v < 1.0 / size, f"a number >= 0 and less than 1 / {size} members")


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Gaussian process of a dictionary: for one factor, or for a sum of factors."""

    kernel: KernelName
    lengthscales: tuple[tuple[float, ...], ...]  # by factor, in shares of the domain's sides
    shares: tuple[float, ...]  # each factor's share of the prior variance; they sum to 1
    outputscale: float = 1.0  # of the sum
    noise_variance: float = 1e-4  # of every outcome
    constant: float = 0.0  # prior mean of the sum, divided evenly


class PartHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members of factors that are weighted together, and their common unit, required to compare weights."""

    factors: tuple[int, ...]
    offsets: tuple[float, ...]  # of each factor's outcomes, in their unit
    scale: float  # unit of the members after subtraction of the offset
    is_shown: bool  # False if outcomes do not differ: then the scale is 1, and members have their prior values
    fitted_at: int  # number of evaluations
    members: tuple[Member, ...]

    def constants(self, member: Member) -> Float[np.ndarray, " k"]:
        """Prior means of the factors under a member, in the unit of the outcomes."""
        return np.array(self.offsets) + self.scale * member.constant / len(self.factors)


class EnsembleHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hyper-parameters of an ensemble: one part of all factors with totals, else one for each factor."""

    parts: tuple[PartHyperparameters, ...]

    def of_members(self, chosen: tuple[int, ...]) -> AdditiveHyperparameters:
        """One chosen member of each part, as one sum of processes."""
        factors = list[FactorHyperparameters]()
        for part, index in zip(self.parts, chosen, strict=True):
            own, constants = part.members[index], part.constants(part.members[index]).tolist()
            for lengths, share, constant in zip(own.lengthscales, own.shares, constants, strict=True):
                variances = own.outputscale * share, own.noise_variance
                factors.append(FactorHyperparameters(own.kernel, lengths, *variances, constant, part.scale))
        return AdditiveHyperparameters.of(factors, factors[0].noise_variance if len(self.parts) == 1 else None)

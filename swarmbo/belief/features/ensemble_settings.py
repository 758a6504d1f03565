"""What an ensemble of Gaussian processes is told to be (settings), and what its members were fitted to be."""

import math
from typing import Literal, get_args

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.kernels import KernelName, require_kernel
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Even, Fraction, NonNegative, Positive, Settings, require

FittedLengthscales = Literal["fitted", "shared"]
_SHORTEST, _LONGEST = 1e-9, 1e9


@kind("belief", FUNCTION)
class EnsembleSettings(Settings, frozen=True, tag_field="kind", tag="ensemble"):
    """Settings of a dictionary of Gaussian processes, weighed by how well they foretold the outcomes.

    There is a member for every kernel with every lengthscale. Variances are relative to the variance of the outcomes;
    the priors on them are normal in the logarithm. The paper's dictionaries are ``lengthscales = ["fitted", "shared"]``
    with its kernels, and ``kernels = ["rbf"]`` with the lengthscales 1e-4, 1e-3, … 1e6; its other settings
    ``n_features = 100`` and ``refit_every = 50``.

    Source: Lu, Polyzos, Li & Giannakis 2022 (EGP-TS), sections 4.1 and 6, appendix E.

    Args:
        kernels: Covariance functions; one's own need frequencies.
        lengthscales: In shares of the sides of the domain, from 1e-9 to 1e9, for a factor of one variable; factors of d
            variables have them √d as long. ``fitted``: by maximum a posteriori, separate for each variable where
            factors are observed one by one, as ``additive`` has it. ``shared``: fitted too, one for all variables of
            the factors that are weighed together.
        n_features: Random features of each factor in each member, an even number >= 2.
        floor: Smallest weight a member is drawn with, >= 0 and less than 1 / number of members.
        refit_every: After this many evaluations, >= 1, members are fitted anew, with features drawn anew.
        outputscale_log_std: Of the prior on each member's outputscale, > 0. Its median is 1.
        noise_median: Median > 0 of the prior on the noise variance.
        noise_log_std: Its standard deviation in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].

    Example:
        >>> import swarmbo as sb
        >>> smooth_or_not = sb.EnsembleSettings(kernels=("rbf",), lengthscales=(0.01, 0.3), n_features=64)
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 12)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, belief=smooth_or_not, acquisition="egp-ts")
        >>> team.attach(x[:, None], np.sin(6.0 * x))
        >>> bool(team.model.ensemble.weights[0][1] > 0.99)  # of the member with the longer lengthscale
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
        require(
            self,
            "lengthscales",
            lambda v: all(
                length in get_args(FittedLengthscales) if isinstance(length, str) else _SHORTEST <= length <= _LONGEST
                for length in v
            ),
            "numbers from 1e-9 to 1e9, 'fitted' or 'shared'",
        )
        size = len(self.kernels) * len(self.lengthscales)
        require(self, "floor", lambda v: v < 1.0 / size, f"a number >= 0 and less than 1 / {size} members")


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Gaussian process of a dictionary: of one factor, or of some in sum.

    Args:
        kernel: Covariance function of every factor.
        lengthscales: For each factor one per variable of its scope, > 0, in shares of the domain's sides.
        shares: Part of the prior variance that each factor has; in sum 1.
        outputscale: Prior variance > 0 of the sum.
        noise_variance: Of every outcome, > 0.
        constant: Prior mean of the sum, shared out evenly.
    """

    kernel: KernelName
    lengthscales: tuple[tuple[float, ...], ...]
    shares: tuple[float, ...]
    outputscale: float = 1.0
    noise_variance: float = 1e-4
    constant: float = 0.0


class PartHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The members of factors that are weighed together, and the unit they share: else weights could not be compared.

    Args:
        factors: Indices of the factors.
        offsets: Of each factor's outcomes, in the unit of the outcomes.
        scale: > 0; members are about outcomes less their offset, in this unit.
        is_shown: Whether outcomes showed it; if not, it is 1, and members are as they were before any data.
        fitted_at: Number of evaluations when members were fitted.
        members: The dictionary.
    """

    factors: tuple[int, ...]
    offsets: tuple[float, ...]
    scale: float
    is_shown: bool
    fitted_at: int
    members: tuple[Member, ...]

    def constants(self, member: Member) -> Float[np.ndarray, " k"]:
        """Prior means of the factors under a member, in the unit of the outcomes."""
        return np.array(self.offsets) + self.scale * member.constant / len(self.factors)


class EnsembleHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that turns data into an ensemble; plain data.

    Args:
        parts: One of all factors where totals are told, else one for each.
    """

    parts: tuple[PartHyperparameters, ...]

    def of_members(self, chosen: tuple[int, ...]) -> AdditiveHyperparameters:
        """One member of each part as one sum of processes.

        Args:
            chosen: Index of a member in each part.
        """
        kernels, lengthscales = list[KernelName](), list[tuple[float, ...]]()
        outputscales, noises, constants, scales = list[float](), list[float](), list[float](), list[float]()
        for part, index in zip(self.parts, chosen, strict=True):
            member, k = part.members[index], len(part.factors)
            kernels += [member.kernel] * k
            lengthscales += member.lengthscales
            outputscales += [member.outputscale * share for share in member.shares]
            noises += [member.noise_variance] * k
            constants += part.constants(member).tolist()
            scales += [part.scale] * k
        out = AdditiveHyperparameters(
            kernels=tuple(kernels),
            lengthscales=tuple(lengthscales),
            outputscales=tuple(outputscales),
            noise_variances=tuple(noises),
            total_noise_variance=0.0,
            constants=tuple(constants),
            scales=tuple(scales),
        )
        noise = noises[0] if len(self.parts) == 1 else math.fsum(out.in_one_unit().noise_variances)
        return msgspec.structs.replace(out, total_noise_variance=noise)

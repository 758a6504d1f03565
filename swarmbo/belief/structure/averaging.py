"""Several decompositions as one."""

from collections.abc import Sequence

from swarmbo.belief.structure.partitions import Scopes, canonical


def averaged(samples: Sequence[Scopes]) -> tuple[Scopes, tuple[float, ...]]:
    """The scopes of all samples, equal ones merged, and each one's share of the prior variance.

    In a sample every scope has an even share; over the samples shares are averaged. A sum of Gaussian processes over
    these scopes with these shares has the average of the samples' covariance functions.

    Args:
        samples: Decompositions of the same variables, at least one.

    Returns:
        Scopes in canonical order, and their shares, which add up to 1.

    Example:
        >>> averaged([((0, 1), (2,)), ((0, 1), (2,)), ((0, 1, 2),), ((0,), (1,), (2,))])
        (((0,), (0, 1), (0, 1, 2), (1,), (2,)), (0.083..., 0.25, 0.25, 0.083..., 0.333...))
    """
    shares: dict[tuple[int, ...], float] = {}
    for sample in samples:
        for scope in canonical(sample):
            shares[scope] = shares.get(scope, 0.0) + 1.0 / (len(sample) * len(samples))
    scopes = canonical(shares)
    return scopes, tuple(shares[scope] for scope in scopes)

"""Settings of the search for unknown scopes."""

from swarmbo.settings import Count, NonNegative, Settings, Whole


class SampledStructure(Settings, frozen=True, tag_field="kind", tag="sampled"):
    """Partitions of the variables, sampled in proportion to their evidence and averaged into one graph.

    The chain begins with one block of all variables (with a cap, random blocks of that size), and continues later from
    its last state. Partitions have the same prior weight. Scopes shared by several samples are one factor of the graph;
    the prior share of the variance of a factor is its average over the samples.

    Source: Gardner et al. 2017; Hoang et al. 2018, appendix B, and Bardou et al. 2024, appendix B, average acquisitions
    over the samples. Here covariances are averaged, so that the result is one Gaussian process; for the former see
    ``DECHBO``'s ``average``.

    Args:
        samples: Partitions averaged, >= 1.
        moves: Splits or merges proposed before each of them, >= 1.
        burn_in: Proposals before the first of all, >= 0.
        largest: Cap on the size of blocks, >= 1; None: no cap.
        every: Evaluations, >= 1, after which partitions are sampled again.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> belief = sb.AdditiveGPSettings(structure=SampledStructure(samples=1, burn_in=8))
        >>> team = sb.Team(None, {name: (0.0, 1.0) for name in "xyz"}, belief=belief, acquisition="dec-hbo")
        >>> X = np.random.default_rng(0).random((30, 3))
        >>> team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        >>> sorted(team.model.belief.graph.scopes)
        [('x', 'z'), ('y',)]
    """

    samples: Count = 5
    moves: Count = 2
    burn_in: Whole = 20
    largest: Count | None = None
    every: Count = 3


class ScreenedScopes(Settings, frozen=True, tag_field="kind", tag="screened"):
    """Scopes that may overlap, found by a search of the evidence with the most promising ones first.

    Args:
        largest: Cap on the size of scopes, >= 1.
        gain: Log evidence, >= 0, that an added scope must bring, or that removal of a kept one must cost.
        tries: Fits, >= 1, in one search, that of the initial scopes included.
        every: Evaluations, >= 1, after which the search continues.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> belief = sb.AdditiveGPSettings(structure=ScreenedScopes(largest=2, tries=8))
        >>> team = sb.Team(None, {name: (0.0, 1.0) for name in "xyz"}, belief=belief, acquisition="dec-hbo")
        >>> X = np.random.default_rng(0).random((30, 3))
        >>> team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        >>> sorted(team.model.belief.graph.scopes)
        [('x', 'z'), ('y',)]
    """

    largest: Count = 4
    gain: NonNegative = 1.0
    tries: Count = 40
    every: Count = 10


StructureSettings = SampledStructure | ScreenedScopes

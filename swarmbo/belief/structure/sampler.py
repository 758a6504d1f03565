"""Metropolis-Hastings over set partitions (Gardner et al. 2017; Hoang et al. 2018, appendix B).

A chain visits partitions in proportion to their weight only if acceptance uses the true proposal probabilities
(Hastings 1970), which depend on the size of a split block and on the moves that a partition permits.
"""

import math
from collections.abc import Callable

import numpy as np

from swarmbo.belief.structure.partitions import Partition, Proposal, propose

LogWeight = Callable[[Partition], float]


def log_acceptance(log_weight: float, log_weight_proposed: float, proposal: Proposal) -> float:
    """Logarithm of the probability to accept a proposal."""
    return min(0.0, log_weight_proposed - log_weight + proposal.log_back - proposal.log_forward)


def sample_partitions(
    start: Partition,
    log_weight: LogWeight,
    rng: np.random.Generator,
    n_samples: int,
    *,
    moves: int = 1,
    largest: int | None = None,
) -> list[Partition]:
    """States of a chain whose stationary distribution is proportional to exp(log_weight); neighbours are often equal.

    Args:
        start: Initial partition, canonical, no block above the cap.
        log_weight: Logarithm of the weight of a partition, up to a constant, such as its evidence; called again for
            repeated proposals.
        rng: For proposals and acceptances.
        n_samples: States wanted, >= 1.
        moves: Proposals, >= 1, before each of them.
        largest: Cap on the size of blocks, >= 1; None: no cap.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> chain = sample_partitions(((0, 1, 2),), lambda p: 5.0 * (p == ((0, 2), (1,))), rng, 1000)
        >>> chain.count(((0, 2), (1,))) > 900
        True
    """
    state, weight, states = start, log_weight(start), list[Partition]()
    for _ in range(n_samples):
        for _ in range(moves):
            proposal = propose(state, rng, largest)
            if proposal is None:
                break
            weight_proposed = log_weight(proposal.partition)
            if math.log(1.0 - rng.random()) < log_acceptance(weight, weight_proposed, proposal):
                state, weight = proposal.partition, weight_proposed
        states.append(state)
    return states

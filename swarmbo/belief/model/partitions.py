"""Set partitions of {0, …, d-1}, a split-merge proposal with exact probabilities, and a Markov chain of partitions.

Source: Gardner et al. 2017 for the proposal; Kandasamy et al. 2015 for partitions as decompositions of a function.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

Block = tuple[int, ...]
Scopes = tuple[Block, ...]  # may overlap
Partition = tuple[Block, ...]  # disjoint, in the form of ``canonical``


def canonical(blocks: Iterable[Iterable[int]]) -> Scopes:
    """Canonical form of scopes: each sorted, in the order of their smallest elements."""
    return tuple(sorted(tuple(sorted(block)) for block in blocks))


class Proposal(NamedTuple):
    """A proposed partition, and the log probabilities of this proposal and of its reverse."""

    partition: Partition
    log_forward: float
    log_back: float


def propose(partition: Partition, rng: np.random.Generator, largest: int | None = None) -> Proposal | None:
    """Split a block, or merge two up to a size of ``largest``, with equal probability; None if no move is possible."""
    splittable, pairs = _moves(partition, largest)
    if not splittable and not pairs:
        return None
    if rng.random() < _odds_of_split(splittable, pairs):
        old: tuple[Block, ...] = (splittable[rng.integers(len(splittable))],)
        new = _cut(old[0], rng)
    else:
        old = pairs[rng.integers(len(pairs))]
        new = (old[0] + old[1],)
    proposed = canonical([block for block in partition if block not in old] + [*new])
    return Proposal(
        proposed, log_probability(partition, proposed, largest), log_probability(proposed, partition, largest)
    )


def log_probability(old: Partition, new: Partition, largest: int | None = None) -> float:
    """Logarithm of the probability that ``propose`` leads from one partition to another; -inf if impossible."""
    splittable, pairs = _moves(old, largest)
    gone, came = [b for b in old if b not in new], [b for b in new if b not in old]
    if len(gone) == 1 and len(came) == 2 and canonical([came[0] + came[1]]) == canonical(gone):
        cuts = 2 ** (len(gone[0]) - 1) - 1
        return math.log(_odds_of_split(splittable, pairs)) - math.log(len(splittable)) - math.log(cuts)
    if len(gone) == 2 and tuple(gone) in pairs and canonical([gone[0] + gone[1]]) == canonical(came):
        return math.log(1.0 - _odds_of_split(splittable, pairs)) - math.log(len(pairs))
    return -math.inf


def _moves(partition: Partition, largest: int | None) -> tuple[list[Block], list[tuple[Block, Block]]]:
    pairs = [(a, b) for a, b in combinations(partition, 2) if largest is None or len(a) + len(b) <= largest]
    return [block for block in partition if len(block) > 1], pairs


def _odds_of_split(splittable: list[Block], pairs: list[tuple[Block, Block]]) -> float:
    return 0.5 if splittable and pairs else float(bool(splittable))


def _cut(block: Block, rng: np.random.Generator) -> tuple[Block, Block]:
    """Uniformly random cut into two nonempty parts."""
    goes = np.zeros(len(block) - 1, dtype=bool)
    while not goes.any():  # each element after the first either leaves its part or stays
        goes = rng.integers(2, size=len(goes)).astype(bool)
    rest = tuple(element for element, leaves in zip(block[1:], goes, strict=True) if leaves)
    return tuple(element for element in block if element not in rest), rest


def random_blocks(n: int, size: int, rng: np.random.Generator) -> Partition:
    """Random permutation of {0, …, n-1}, cut into blocks of a size; the last one may be smaller."""
    order = rng.permutation(n).tolist()
    return canonical(order[i : i + size] for i in range(0, n, size))


def averaged(samples: Sequence[Scopes]) -> tuple[Scopes, tuple[float, ...]]:
    """Merged scopes of all samples in canonical order, and their shares of the prior variance, which sum to 1.

    Within a sample, all scopes have equal shares; shares are averaged over samples. A sum of Gaussian processes over
    these scopes with these shares has the average of the samples' covariance functions.
    """
    shares: dict[tuple[int, ...], float] = {}
    for sample in samples:
        for scope in canonical(sample):
            shares[scope] = shares.get(scope, 0.0) + 1.0 / (len(sample) * len(samples))
    scopes = canonical(shares)
    return scopes, tuple(shares[scope] for scope in scopes)


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
    """States, ``moves`` apart, of a chain whose stationary distribution is proportional to exp(log_weight)."""
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

"""Learned structure of a function, carried from one decision to the next."""

import msgspec

from swarmbo.belief.structure.evidence import StartingPoint
from swarmbo.belief.structure.partitions import Scopes


class LearnedStructure(msgspec.Struct, frozen=True):
    """Scopes in use, and the state of the next search; plain data. Variables are columns of joint points.

    Args:
        scopes: In use, at least one; every variable is covered.
        shares: Prior share of the variance of each, in sum 1; empty: even ones.
        chosen_at: Number of evaluations when they were chosen.
        state: State of the search: the last one of a chain over partitions, or the scopes themselves.
        start: Starting point of its fits; None: without data, or with constant ones.
        samples: The sampled decompositions with these scopes; empty for other searches.
    """

    scopes: Scopes
    shares: tuple[float, ...]
    chosen_at: int
    state: Scopes
    start: StartingPoint | None = None
    samples: tuple[Scopes, ...] = ()

"""What is known of a function's structure from one decision to the next."""

import msgspec

from swarmbo.belief.structure.evidence import StartingPoint
from swarmbo.belief.structure.partitions import Scopes


class LearnedStructure(msgspec.Struct, frozen=True):
    """Scopes in use, and what the next search for some needs; plain data. Variables are columns of joint points.

    Args:
        scopes: In use, at least one; every variable is covered.
        shares: Prior share of the variance of each, in sum 1; empty: even ones.
        chosen_at: Number of evaluations when they were chosen.
        state: Where the search goes on: the last state of a chain over partitions, or the scopes themselves.
        start: Where fits begin then; None: no data were looked at, or they did not vary.
        samples: The sampled decompositions whose scopes these are; none where they were found otherwise.
    """

    scopes: Scopes
    shares: tuple[float, ...]
    chosen_at: int
    state: Scopes
    start: StartingPoint | None = None
    samples: tuple[Scopes, ...] = ()

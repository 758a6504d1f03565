"""Structure of a function from settings and data, carried from one decision to the next."""

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.structure.evidence import ScopeEvidence, StartingPoint
from swarmbo.belief.structure.partitions import Scopes, averaged, random_blocks, sample_partitions
from swarmbo.belief.structure.screening import screened
from swarmbo.belief.structure.settings import SampledStructure, StructureSettings


class LearnedStructure(msgspec.Struct, frozen=True):
    """Scopes in use, and the state of the next search; plain data. Variables are columns of joint points."""

    scopes: Scopes  # at least one; every variable is covered
    shares: tuple[float, ...]  # prior share of the variance of each, in sum 1; empty: even ones
    chosen_at: int  # number of evaluations
    state: Scopes  # last state of a chain over partitions, or the scopes themselves
    start: StartingPoint | None = None  # of its fits; None: without data, or with constant ones
    samples: tuple[Scopes, ...] = ()  # sampled decompositions; empty for other searches


def choose_structure(
    settings: StructureSettings,
    belief: AdditiveGPSettings,
    U: Float[np.ndarray, "t n"],
    totals: Float[np.ndarray, " t"],
    noise: Float[np.ndarray, " t"],
    rng: np.random.Generator,
    previous: LearnedStructure | None,
    n_evaluations: int,
) -> LearnedStructure:
    """Structure to use from now on: the previous one, unless another is due.

    ``totals`` that are not finite are ignored; ``noise`` has their noise variances, NaN if unknown. ``previous`` is
    from an earlier call with the same settings, None at first. ``n_evaluations`` includes failed ones.
    """
    if previous is not None and previous.start is None:
        previous = None  # chosen without data: no state to continue from
    if previous is not None and n_evaluations - previous.chosen_at < settings.every:
        return previous
    n = U.shape[1]
    told = np.isfinite(totals)
    start = None if previous is None else previous.start
    evidence = ScopeEvidence(belief, U[told], totals[told], start, noise[told])
    samples: list[Scopes] = []
    if isinstance(settings, SampledStructure):
        largest = settings.largest
        if previous is not None:
            state = previous.state
        else:
            state = (tuple(range(n)),) if largest is None else random_blocks(n, largest, rng)
            if settings.burn_in:
                (state,) = sample_partitions(state, evidence, rng, 1, moves=settings.burn_in, largest=largest)
        samples = sample_partitions(state, evidence, rng, settings.samples, moves=settings.moves, largest=largest)
        (scopes, shares), state = averaged(samples), samples[-1]
    else:
        alone = tuple((variable,) for variable in range(n))
        begin = alone if previous is None else previous.state
        scopes = screened(begin, evidence, rng, largest=settings.largest, gain=settings.gain, tries=settings.tries)
        shares, state = (), scopes
    _, varies = evidence.standardised()
    start = evidence.fit(state).starting_point() if varies else None
    return LearnedStructure(scopes, shares, n_evaluations, state, start, tuple(samples))

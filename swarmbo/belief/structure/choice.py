"""The structure that settings and data lead to."""

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.structure.evidence import ScopeEvidence
from swarmbo.belief.structure.learned import LearnedStructure
from swarmbo.belief.structure.partitions import Scopes, averaged, random_blocks
from swarmbo.belief.structure.sampler import sample_partitions
from swarmbo.belief.structure.screening import screened
from swarmbo.belief.structure.settings import SampledStructure, StructureSettings


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
    """The structure to be used from now on: the previous one, unless another is due.

    Args:
        settings: How it is found.
        belief: Kernel and priors of the fits that evidence needs.
        U: Points (t, n) of the unit cube.
        totals: Their outcomes (t,); those that are not finite are not used.
        noise: The variance of their noise (t,); NaN where nobody says.
        rng: What is drawn from; a function of the team's seed and the number of evaluations.
        previous: From an earlier call with the same settings; None at first.
        n_evaluations: Those made so far, failed ones included.
    """
    if previous is not None and previous.start is None:
        previous = None  # chosen before outcomes said anything: no place to go on from
    if previous is not None and n_evaluations - previous.chosen_at < settings.every:
        return previous
    n = U.shape[1]
    told = np.isfinite(totals)
    start = None if previous is None else previous.start
    evidence = ScopeEvidence(belief, U[told], totals[told], start, noise[told])
    samples: list[Scopes] = []
    if isinstance(settings, SampledStructure):
        samples = _sampled(settings, evidence, rng, previous, n)
        (scopes, shares), state = averaged(samples), samples[-1]
    else:
        alone = tuple((variable,) for variable in range(n))
        begin = alone if previous is None else previous.state
        scopes = screened(begin, evidence, rng, largest=settings.largest, gain=settings.gain, tries=settings.tries)
        shares, state = (), scopes
    _, varies = evidence.standardised()
    start = evidence.fit(state).starting_point() if varies else None
    return LearnedStructure(scopes, shares, n_evaluations, state, start, tuple(samples))


def _sampled(
    settings: SampledStructure,
    evidence: ScopeEvidence,
    rng: np.random.Generator,
    previous: LearnedStructure | None,
    n: int,
) -> list[Scopes]:
    largest = settings.largest
    if previous is not None:
        state = previous.state
    else:
        state = (tuple(range(n)),) if largest is None else random_blocks(n, largest, rng)
        if settings.burn_in:
            (state,) = sample_partitions(state, evidence, rng, 1, moves=settings.burn_in, largest=largest)
    return sample_partitions(state, evidence, rng, settings.samples, moves=settings.moves, largest=largest)

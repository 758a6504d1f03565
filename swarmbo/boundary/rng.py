"""Named streams of random numbers, all derived from one seed.

A stream does not depend on the use of others. So adding an agent or a metric never changes the draws of others, and a
resumed run draws the same numbers as an uninterrupted one.
"""

import hashlib

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.values import whole_number


def stream(seed: int, *names: str, **numbers: int | str) -> np.random.Generator:
    """Random generator (PCG64) for one named purpose; equal arguments give equal streams, on every machine.

    Names go from the general to the special: ``"environment", "noise"``. Numbers are indices within that purpose.
    """
    seed = whole_number(seed, 0, "$.seed")
    label = "/".join([*names, *(f"{key}={value}" for key, value in sorted(numbers.items()))])
    digest = hashlib.blake2b(label.encode(), digest_size=16).digest()  # not hash(): that one is salted per process
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def sobol(n: int, n_dims: int, rng: np.random.Generator | None, skip: int = 0) -> Float[np.ndarray, "n d"]:
    """Points of a Sobol sequence in the unit cube, scrambled by ``rng`` unless None, after ``skip`` others."""
    from scipy.stats import qmc  # late: it doubles the time that swarmbo takes to load

    sequence = qmc.Sobol(n_dims, scramble=rng is not None, rng=rng)
    if skip:  # SciPy refuses to skip 0 points
        sequence.fast_forward(skip)
        return sequence.random(n)
    return sequence.random(1 << (n - 1).bit_length())[:n]  # SciPy warns of counts that are not powers of two

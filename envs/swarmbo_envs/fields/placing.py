"""Places apart from one another, among the sites of a field."""

import numpy as np
from jaxtyping import Float


def spread(rng: np.random.Generator, sites: Float[np.ndarray, "k 2"], n_places: int) -> Float[np.ndarray, "n_places 2"]:
    """Random sites, kept apart from each other.

    Sites are taken in random order, each at least half the side of a place's share of the map from those before it;
    where the sites do not allow that, the distance is lowered until they do.

    Args:
        rng: Where the randomness comes from.
        sites: Places to choose from, at least as many, all different.
        n_places: How many.
    """
    order = sites[rng.permutation(len(sites))]
    apart = 0.5 * float(np.sqrt(np.prod(np.ptp(sites, axis=0)) / n_places))
    while True:
        chosen: list[Float[np.ndarray, " 2"]] = []
        free = np.ones(len(order), dtype=bool)
        while len(chosen) < n_places and free.any():
            site = order[free.argmax()]
            chosen.append(site)
            free &= (((order - site) ** 2).sum(axis=1) >= apart**2) & (order != site).any(axis=1)
        if len(chosen) == n_places:
            return np.array(chosen)
        apart *= 0.8

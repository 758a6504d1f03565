"""Representative places of a map for plans."""

import functools

import numpy as np
from jaxtyping import Float

from swarmbo.spaces import Domain


def planning_places(domain: Domain, sites: Float[np.ndarray, "k d"] | None, n_places: int) -> Float[np.ndarray, "m d"]:
    """About ``n_places`` places, spread evenly over the measurable ones, in a fixed order.

    The map is divided into nearly cubic cells. Each cell gives the site nearest to its centre, or its centre if
    ``sites`` is None; cells without a site give none. All sites are taken if there are no more of them.

    Example:
        >>> planning_places(Domain(np.zeros(2), np.array([4.0, 1.0])), None, 4).tolist()
        [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [3.5, 0.5]]
    """
    given = None if sites is None else np.ascontiguousarray(sites, dtype=float).tobytes()
    return _spread(domain.low.tobytes(), domain.high.tobytes(), given, n_places)


def keys_of(places: Float[np.ndarray, "k d"]) -> list[bytes]:
    """Each place as bytes, as a key."""
    told, size = np.ascontiguousarray(places).tobytes(), places.itemsize * places.shape[1]
    return [told[start : start + size] for start in range(0, len(told), size)]


@functools.lru_cache(maxsize=8)  # a world's sites are the same in every round
def _spread(low: bytes, high: bytes, given: bytes | None, n_places: int) -> Float[np.ndarray, "m d"]:
    domain = Domain(np.frombuffer(low), np.frombuffer(high))
    places = _chosen(domain, None if given is None else np.frombuffer(given).reshape(-1, domain.n_dims), n_places)
    places.flags.writeable = False
    return places


def _chosen(domain: Domain, sites: Float[np.ndarray, "k d"] | None, n_places: int) -> Float[np.ndarray, "m d"]:
    if sites is not None and len(sites) <= n_places:
        return np.unique(sites, axis=0)
    sides = domain.high - domain.low
    counts = _counts(sides, n_places)
    if sites is None:
        axes = [low + side * (np.arange(n) + 0.5) / n for low, side, n in zip(domain.low, sides, counts, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(sides))
    at = (sites - domain.low) / sides * counts
    cells = np.clip(np.floor(at), 0, counts - 1).astype(int)
    off = (((at - cells - 0.5) * (sides / counts)) ** 2).sum(axis=1)
    number = np.asarray(np.ravel_multi_index(tuple(cells.T), tuple(counts.tolist())))
    nearest = np.full(np.prod(counts), np.inf)
    np.minimum.at(nearest, number, off)
    found = np.flatnonzero(off == nearest[number])
    return sites[found[np.unique(number[found], return_index=True)[1]]]


def _counts(sides: Float[np.ndarray, " d"], n_places: int) -> np.ndarray:
    """Cells along each side: at most ``n_places`` in all, and as cubic as whole numbers allow."""
    counts = np.ones(len(sides), dtype=int)
    while True:
        longest = int(np.argmax(sides / counts))
        grown = counts.copy()
        grown[longest] += 1
        if np.prod(grown, dtype=float) > n_places:
            return counts
        counts = grown

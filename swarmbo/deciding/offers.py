"""Offers of agents in a field: reachable locations in a round, their price, and candidate locations."""

import zlib
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.boundary.rng import sobol, stream
from swarmbo.boundary.values import real_array, short
from swarmbo.errors import ShapeError, TransportError
from swarmbo.problem import Problem
from swarmbo.spaces import Domain, PlaceTable, place_keys, unique_places
from swarmbo.worlds import Offers

Places = Float[np.ndarray, "k d"]  # physical
_N_CANDIDATES = 512
_TRIES = 64  # repetitions of a draw if there are no-go regions
_N_RECOMMENDED = 2048


def random_candidates(agent: str, box: Domain, problem: Problem, seed: int, round_number: int) -> Places:
    """Draw 512 allowed locations for an agent, uniform in its box; fewer if hardly anything is allowed."""
    # each agent has its own stream, so its draw does not depend on which other agents are present
    found, rng = np.zeros((0, box.n_dims)), stream(seed, "candidates", agent=agent, round=round_number)
    for _ in range(_TRIES):
        drawn = box.from_unit(rng.random((_N_CANDIDATES, box.n_dims)))
        found = np.concatenate([found, allowed_places(drawn, problem)])
        if len(found) >= _N_CANDIDATES:
            break
    return found[:_N_CANDIDATES]


def allowed_places(places: Places, problem: Problem) -> Float[np.ndarray, "j d"]:
    """Physical locations that are outside all no-go regions."""
    return places[problem.is_allowed(problem.box.to_unit(places))] if problem.no_go else places


def allowed_sites(sites: ArrayLike | None, problem: Problem) -> Places | None:
    """All allowed locations of a field, given its measurable sites; None: the whole box."""
    if sites is None:
        if not problem.no_go:
            return None
        unit = sobol(_N_RECOMMENDED, problem.box.n_dims, stream(0, "planning places"))  # the same for all teams
        return allowed_places(problem.box.from_unit(unit), problem)
    return allowed_places(checked_candidates("sites()", sites, problem.box), problem)


def checked_candidates(agent: str, given: ArrayLike, domain: Domain) -> Places:
    """Check a user's locations for an agent, and drop repeated ones; they may lie near the box."""
    places, d = real_array(given), domain.n_dims
    places = np.zeros((0, d)) if places is not None and places.size == 0 else places
    if places is None or places.ndim != 2 or places.shape[1] != d:
        got = short(given) if places is None else f"shape {places.shape}"
        raise ShapeError(f"candidates of {agent!r}: got {got}; wanted numbers (k, {d})")
    if not (near := domain.is_near(places)).all():
        place = places[int(np.argmin(near))].tolist()
        raise ShapeError(f"candidates of {agent!r}: got {place}; wanted finite numbers {domain.NEAR}")
    places = places + 0.0  # turns -0 into 0, as places are compared by their bytes
    if len(np.unique(place_keys(places))) < len(places):
        places = places[np.sort(np.unique(unique_places(places)[1], return_index=True)[1])]
    return places


def places_to_recommend(domain: Domain, measured: Float[np.ndarray, "n d"], seed: int) -> Float[np.ndarray, "m d"]:
    """2,048 quasi-random locations of a box, and the measured locations in it."""
    unit = sobol(_N_RECOMMENDED, domain.n_dims, stream(seed, "recommendation"))
    inside = ((domain.low <= measured) & (domain.high >= measured)).all(axis=1)
    return np.concatenate([domain.from_unit(unit), measured[inside]])


_MOST = 2**22  # limit of unpacked bytes: more locations than a message of some megabytes can hold
_NUMBERS, _INDICES, _IS_COMPRESSED = 0, 1, 2  # bits of the first byte


def packed(places: Places, sites: PlaceTable | None = None) -> bytes:
    """Pack locations, in their order, as bytes.

    Locations that are all sites become differences of indices, as most sites within an agent's reach are consecutive.
    Others are stored column by column, as numbers of a lattice repeat. Either is compressed if that is shorter.
    """
    kind, content = _NUMBERS, np.ascontiguousarray(np.asarray(places, dtype="<f8").T).tobytes()
    if len(content) > _MOST:  # a receiver refuses to inflate more than this, so long lists are sent uncompressed
        return bytes([kind]) + content
    rows = sites.rows_of(places) if sites is not None and len(places) else None
    # compared bit by bit: a site that differs in its last bit is another location, and decisions would differ
    if sites is not None and rows is not None and sites.places[rows].tobytes() == places.tobytes():
        # most sites in reach are consecutive, so differences are small numbers of one byte
        kind, content = _INDICES, msgspec.msgpack.encode(np.diff(rows, prepend=0).tolist())
    shorter = zlib.compress(content, 9)
    return bytes([kind | _IS_COMPRESSED]) + shorter if len(shorter) < len(content) else bytes([kind]) + content


def unpacked(content: bytes, n_dims: int, sites: Float[np.ndarray, "s d"] | None = None) -> Places:
    """Unpack locations, with the sites of packing."""
    kind, rest = content[:1], content[1:]
    try:
        if not kind or kind[0] > (_INDICES | _IS_COMPRESSED):
            raise ValueError(f"kind {kind!r}")
        if kind[0] & _IS_COMPRESSED:
            rest = inflated(rest, _MOST)
        if not kind[0] & _INDICES:
            return np.frombuffer(rest, dtype="<f8").reshape(n_dims, -1).T.copy()
        if sites is None:
            raise ValueError("indices without sites")
        differences = msgspec.msgpack.decode(rest, type=list[int])
        if 8 * n_dims * len(differences) > _MOST:
            raise ValueError("more bytes than locations take")
        indices = np.cumsum(np.array(differences, dtype=np.int64))
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(sites):
            raise ValueError("an index beyond the sites")
        return sites[indices]
    except (ValueError, OverflowError, zlib.error, msgspec.MsgspecError) as error:
        raise TransportError(f"got locations that can't be read: {error}; do agents know the same sites?") from error


def inflated(content: bytes, most: int) -> bytes:
    """Decompress bytes up to a limit, as a few bytes could expand to millions."""
    reader = zlib.decompressobj()
    found = reader.decompress(content, most)
    if not reader.eof:
        raise ValueError(f"more than {most} bytes, or cut off")
    return found


class Offer(msgspec.Struct, frozen=True):
    """Offer of one agent: reachable locations in a round (None: the whole box), and their price. With a price of 0, it
    never abstains. The default position is that of its last measurement.
    """

    candidates: tuple[tuple[float, ...], ...] | None = None
    price: float = 0.0
    position: tuple[float, ...] | None = None
    takes_part: bool = True


class PackedOffer(msgspec.Struct, frozen=True, array_like=True):
    """An offer as it crosses the links, with packed candidates."""

    candidates: bytes | None
    price: float
    position: tuple[float, ...] | None
    takes_part: bool = True

    @classmethod
    def of(cls, offer: Offer, candidates: Places | None, sites: PlaceTable | None) -> "PackedOffer":
        """Pack an offer with candidates, which are indices of sites if all are sites."""
        content = None if candidates is None else packed(candidates, sites)
        return cls(content, offer.price, offer.position, offer.takes_part)

    def places(self, n_dims: int, sites: Float[np.ndarray, "s d"] | None) -> Places | None:
        """Unpack the candidates, with the same sites."""
        return None if self.candidates is None else unpacked(self.candidates, n_dims, sites)

    @property
    def checksum(self) -> int:
        """Checksum from 0 to 127, one byte on the wire, that distinguishes offers."""
        return zlib.crc32(msgspec.msgpack.encode(self)) & 0x7F


def offer_of(agent: str, offers: Offers, places: Places | None = None) -> Offer:
    """One agent's own offer from an environment's offers, with candidates."""
    position = offers.standpoints.get(agent)
    return Offer(
        None if places is None else tuple(map(tuple, places.tolist())),
        float(offers.prices.get(agent, 0.0)),
        None if position is None else tuple(position.tolist()),
        offers.agents is None or agent in offers.agents,
    )


def reachable_places(agent: str, offers: Offers, problem: Problem, seed: int, round_number: int) -> Places | None:
    """Locations that one agent can reach in a round, by an environment's offers; None: the whole box."""
    box = problem.box
    if offers.candidates is not None:
        return np.asarray(offers.candidates.get(agent, ()), dtype=float).reshape(-1, box.n_dims)
    own = offers.boxes.get(agent, box)
    if (own.low == box.low).all() and (own.high == box.high).all():
        return None
    return random_candidates(agent, own, problem, seed, round_number)


def offers_of(
    common: Offers, given: Mapping[str, PackedOffer], problem: Problem, seed: int, round_number: int
) -> Offers:
    """Offers of agents from an environment's offers; agents without candidates draw new candidates in each round."""
    present = {name: offer for name, offer in given.items() if offer.takes_part}
    candidates: dict[str, np.ndarray] | None = None
    if any(offer.candidates is not None for offer in present.values()):
        candidates = {}
        for name, offer in present.items():
            if (places := offer.places(problem.box.n_dims, common.sites)) is None:
                places = random_candidates(name, problem.box, problem, seed, round_number)
            candidates[name] = places
    return replace(
        common,
        agents=tuple(present),
        candidates=candidates,
        prices={name: offer.price for name, offer in present.items()},
        standpoints={name: np.array(offer.position) for name, offer in given.items() if offer.position is not None},
    )

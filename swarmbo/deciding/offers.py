"""Offers of agents in a field: where each can go in a round, on what terms, and where it measures on its way."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.acquisition.travel import OnTheWay
from swarmbo.boundary.values import short
from swarmbo.deciding.candidates import random_candidates
from swarmbo.deciding.packed_places import packed, packed_ways, unpacked, unpacked_ways
from swarmbo.errors import ShapeError
from swarmbo.problem import Problem
from swarmbo.worlds import Offers

Place = tuple[float, ...]
Ways = tuple[tuple[Place, ...], ...]  # for each candidate what is passed, in turn


class Offer(msgspec.Struct, frozen=True):
    """Where one agent can go in a round, and on what terms.

    Args:
        candidates: Places (k, d), physical; None: anywhere in the box.
        price: What a measurement costs it, in the unit of the outcome; one that pays nothing does not decline.
        position: Where it stands (d,), if not where it measured last.
        takes_part: Whether it is there at all: who is gone is not among those who choose.
        on_the_way: For each candidate where it measures before it is there; None where it does not.
    """

    candidates: tuple[tuple[float, ...], ...] | None = None
    price: float = 0.0
    position: tuple[float, ...] | None = None
    takes_part: bool = True
    on_the_way: Ways | None = None


class PackedOffer(msgspec.Struct, frozen=True, array_like=True):
    """An offer as it crosses the links: candidates and ways are packed."""

    candidates: bytes | None
    price: float
    position: tuple[float, ...] | None
    takes_part: bool = True
    on_the_way: bytes | None = None

    @classmethod
    def of(cls, offer: Offer, n_dims: int, sites: Float[np.ndarray, "s d"] | None) -> "PackedOffer":
        """An offer of places with so many coordinates, as indices of sites where they are some of them."""
        places, ways = offer.candidates, offer.on_the_way
        return cls(
            None if places is None else packed(np.array(places).reshape(-1, n_dims), sites),
            offer.price,
            offer.position,
            offer.takes_part,
            None if ways is None else packed_ways(ways, n_dims),
        )

    def unpacked(self, n_dims: int, sites: Float[np.ndarray, "s d"] | None) -> Offer:
        """The offer again, by the same sites."""
        places, ways = None, None
        if self.candidates is not None:
            places = tuple(tuple(place) for place in unpacked(self.candidates, n_dims, sites).tolist())
        if self.on_the_way is not None:
            ways = unpacked_ways(self.on_the_way, n_dims)
        return Offer(places, self.price, self.position, self.takes_part, ways)

    @property
    def check(self) -> int:
        """A number from 0 to 127, one byte on the wire, by which another offer is told apart from this one."""
        return zlib.crc32(msgspec.msgpack.encode(self)) & 0x7F


def offer_of(
    agent: str,
    offers: Offers,
    problem: Problem,
    seed: int,
    round_number: int,
    position: "Float[np.ndarray, ' d'] | None",
) -> Offer:
    """Of what a world in a field says, what is one agent's own.

    Args:
        agent: Which.
        offers: What a world says.
        problem: The field.
        seed: Of all agents.
        round_number: The coming round.
        position: Where the agent measured last, if that is known.
    """
    box, places, ways = problem.box, None, None
    if offers.candidates is not None:
        places = np.asarray(offers.candidates.get(agent, ()), dtype=float).reshape(-1, box.n_dims)
    else:
        own = offers.boxes.get(agent, box)
        is_box = (own.low == box.low).all() and (own.high == box.high).all()
        if not is_box or offers.on_the_way is not None:
            places = random_candidates({agent: own}, seed, round_number, problem)[agent]
    stands = offers.standpoints.get(agent)
    origin = position if stands is None else stands
    if offers.on_the_way is not None and places is not None and len(places) and origin is not None:
        ways = checked_ways(list(offers.on_the_way(agent, origin, places)), len(places), box.n_dims)
    return Offer(
        None if places is None else tuple(map(tuple, places.tolist())),
        float(offers.prices.get(agent, 0.0)),
        None if stands is None else tuple(stands.tolist()),
        offers.agents is None or agent in offers.agents,
        ways,
    )


def offers_of(
    common: Offers, given: Mapping[str, Offer], problem: Problem, seed: int, round_number: int, own: str = ""
) -> Offers:
    """What agents said of where they can go, as a world says it to a team.

    Args:
        common: What all know of the world, and where this agent measures on its ways, if it knows.
        given: By agent.
        problem: The field.
        seed: Of all agents.
        round_number: The coming round; who does not say where it can go draws places anew in each.
        own: Whose side this is.
    """
    present = {name: offer for name, offer in given.items() if offer.takes_part}
    candidates: dict[str, np.ndarray] | None = None
    if any(offer.candidates is not None for offer in present.values()):
        anywhere = {name: problem.box for name, offer in present.items() if offer.candidates is None}
        candidates = random_candidates(anywhere, seed, round_number, problem)
        for name, offer in present.items():
            if offer.candidates is not None:
                candidates[name] = np.array(offer.candidates).reshape(-1, problem.box.n_dims)
    ways = {
        name: (offer.candidates, offer.on_the_way)
        for name, offer in present.items()
        if offer.candidates is not None and offer.on_the_way is not None
    }
    return replace(
        common,
        agents=tuple(present),
        on_the_way=SaidWays(ways, own, common.on_the_way) if ways else None,
        candidates=candidates,
        prices={name: offer.price for name, offer in present.items()},
        standpoints={name: np.array(offer.position) for name, offer in given.items() if offer.position is not None},
    )


def checked_ways(ways: Sequence[ArrayLike], n_candidates: int, n_dims: int) -> Ways:
    """What is measured on the way to each candidate.

    Args:
        ways: For each of them places (m, d), in turn; rows that are NaN as a whole are none.
        n_candidates: How many there are.
        n_dims: Coordinates of a place.

    Raises:
        ShapeError: If there is not one way for each candidate, or something is no place.
    """
    if len(ways) != n_candidates:
        raise ShapeError(f"on_the_way: got {len(ways)} ways; wanted one for each of {n_candidates} candidates")
    return tuple(_checked(way, n_dims) for way in ways)


def _checked(way: ArrayLike, n_dims: int) -> tuple[Place, ...]:
    wanted = f"on_the_way: got {short(way)}; wanted finite numbers (m, {n_dims}), or NaN for a whole place"
    try:
        told = np.asarray(way, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(wanted) from error
    if told.size == 0:
        return ()
    if told.shape != (len(told), n_dims):
        raise ShapeError(wanted)
    places = told[~np.isnan(told).all(axis=1)]
    if not np.isfinite(places).all():
        raise ShapeError(wanted)
    return tuple(map(tuple, places.tolist()))


class SaidWays:
    """An ``OnTheWay`` that knows of each agent's candidates what it said of them, and of no other place.

    Args:
        said: For each agent its candidates, and where it measures on the way to each.
        name: Whose side this is.
        own: Where that agent measures on any of its ways, if it knows; of account where it said so of its candidates.
    """

    def __init__(
        self, said: Mapping[str, tuple[Sequence[Place], Ways]], name: str = "", own: OnTheWay | None = None
    ) -> None:
        self._said = {agent: dict(zip(places, ways, strict=True)) for agent, (places, ways) in said.items()}
        self._name, self._own = name, own if name in said else None

    def __call__(
        self, agent: str, origin: Float[np.ndarray, " d"], places: Float[np.ndarray, "m d"]
    ) -> Float[np.ndarray, "m k d"]:
        """As a world says it; ``origin`` is where the agent stood when it said so, or anywhere on its own ways."""
        if agent == self._name and self._own is not None:
            return self._own(agent, origin, places)
        known = self._said.get(agent, {})
        ways = [known.get(tuple(place), ()) for place in places.tolist()]
        out = np.full((len(ways), max(map(len, ways), default=0), places.shape[1]), np.nan)
        for row, way in zip(out, ways, strict=True):
            row[: len(way)] = np.array(way).reshape(-1, places.shape[1])
        return out

"""Offers of agents in a field: reachable locations in a round, and their price."""

import zlib
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.deciding.candidates import random_candidates
from swarmbo.deciding.packed_places import packed, unpacked
from swarmbo.problem import Problem
from swarmbo.worlds import Offers


class Offer(msgspec.Struct, frozen=True):
    """Offer of one agent: reachable locations in a round (None: the whole box), and their price.

    At a price of 0 an agent never abstains. The default position is that of its last measurement.
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
    def of(cls, offer: Offer, n_dims: int, sites: Float[np.ndarray, "s d"] | None) -> "PackedOffer":
        """Pack an offer; candidates are indices of sites, if they are sites."""
        places = offer.candidates
        return cls(
            None if places is None else packed(np.array(places).reshape(-1, n_dims), sites),
            offer.price,
            offer.position,
            offer.takes_part,
        )

    def unpacked(self, n_dims: int, sites: Float[np.ndarray, "s d"] | None) -> Offer:
        """Unpack the offer with the same sites."""
        places = None
        if self.candidates is not None:
            places = tuple(tuple(place) for place in unpacked(self.candidates, n_dims, sites).tolist())
        return Offer(places, self.price, self.position, self.takes_part)

    @property
    def check(self) -> int:
        """Checksum from 0 to 127, one byte on the wire, that distinguishes offers."""
        return zlib.crc32(msgspec.msgpack.encode(self)) & 0x7F


def offer_of(
    agent: str,
    offers: Offers,
    problem: Problem,
    seed: int,
    round_number: int,
    position: "Float[np.ndarray, ' d'] | None",
) -> Offer:
    """One agent's own offer from an environment's offers; ``position`` is that of its last measurement, if known."""
    box, places = problem.box, None
    if offers.candidates is not None:
        places = np.asarray(offers.candidates.get(agent, ()), dtype=float).reshape(-1, box.n_dims)
    else:
        own = offers.boxes.get(agent, box)
        is_box = (own.low == box.low).all() and (own.high == box.high).all()
        if not is_box:
            places = random_candidates({agent: own}, seed, round_number, problem)[agent]
    stands = offers.standpoints.get(agent)
    return Offer(
        None if places is None else tuple(map(tuple, places.tolist())),
        float(offers.prices.get(agent, 0.0)),
        None if stands is None else tuple(stands.tolist()),
        offers.agents is None or agent in offers.agents,
    )


def offers_of(common: Offers, given: Mapping[str, Offer], problem: Problem, seed: int, round_number: int) -> Offers:
    """Offers of agents as an environment gives them; agents without candidates draw new ones in each round."""
    present = {name: offer for name, offer in given.items() if offer.takes_part}
    candidates: dict[str, np.ndarray] | None = None
    if any(offer.candidates is not None for offer in present.values()):
        anywhere = {name: problem.box for name, offer in present.items() if offer.candidates is None}
        candidates = random_candidates(anywhere, seed, round_number, problem)
        for name, offer in present.items():
            if offer.candidates is not None:
                candidates[name] = np.array(offer.candidates).reshape(-1, problem.box.n_dims)
    return replace(
        common,
        agents=tuple(present),
        candidates=candidates,
        prices={name: offer.price for name, offer in present.items()},
        standpoints={name: np.array(offer.position) for name, offer in given.items() if offer.position is not None},
    )

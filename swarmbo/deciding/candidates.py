"""Candidate locations of a team in a field: those of a round, and those of a recommendation."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.boundary.rng import sobol, stream
from swarmbo.boundary.values import real_array, short
from swarmbo.errors import ShapeError
from swarmbo.problem import Problem
from swarmbo.spaces import Domain

_N_CANDIDATES = 512
_TRIES = 64  # repetitions of a draw if there are no-go regions
_N_RECOMMENDED = 2048


def random_candidates(
    boxes: Mapping[str, Domain], seed: int, round_number: int, problem: Problem | None = None
) -> dict[str, Float[np.ndarray, "k d"]]:
    """Draw 512 allowed locations for each agent, uniform in its box; fewer if hardly anything is allowed."""
    # a stream for each agent: its draw does not depend on which others are present
    streams = {agent: stream(seed, "candidates", agent=agent, round=round_number) for agent in boxes}
    return {agent: _drawn(boxes[agent], rng, problem) for agent, rng in streams.items()}


def _drawn(box: Domain, rng: np.random.Generator, problem: Problem | None) -> Float[np.ndarray, "k d"]:
    found = np.zeros((0, box.n_dims))
    for _ in range(_TRIES):
        drawn = box.from_unit(rng.random((_N_CANDIDATES, box.n_dims)))
        found = np.concatenate([found, allowed_places(drawn, problem)])
        if len(found) >= _N_CANDIDATES:
            break
    return found[:_N_CANDIDATES]


def allowed_places(places: Float[np.ndarray, "k d"], problem: Problem | None) -> Float[np.ndarray, "j d"]:
    """Keep the allowed ones of physical locations; without a problem all are."""
    if problem is None or not problem.no_go:
        return places
    return places[problem.is_allowed(problem.box.to_unit(places))]


def allowed_sites(sites: ArrayLike | None, problem: Problem) -> Float[np.ndarray, "k d"] | None:
    """All allowed locations of a field, given its measurable sites; None: the whole box."""
    if sites is None:
        if not problem.no_go:
            return None
        unit = sobol(_N_RECOMMENDED, problem.box.n_dims, stream(0, "planning places"))  # the same for all teams
        return allowed_places(problem.box.from_unit(unit), problem)
    (checked,) = checked_candidates({"sites()": sites}, ["sites()"], problem.box).values()
    return allowed_places(checked, problem)


def checked_candidates(
    candidates: Mapping[str, ArrayLike], agents: Sequence[str], domain: Domain
) -> dict[str, Float[np.ndarray, "k d"]]:
    """Check a user's locations for each agent, none for a missing one; they may lie moderately outside the box."""
    checked: dict[str, Float[np.ndarray, "k d"]] = {}
    for agent in agents:
        given, d = candidates.get(agent, ()), domain.n_dims
        if (places := real_array(given)) is None:
            raise ShapeError(f"candidates of {agent!r}: got {short(given)}; wanted numbers (k, {d})")
        places = places.reshape(0, d) if places.size == 0 else places
        if places.ndim != 2 or places.shape[1] != d:
            raise ShapeError(f"candidates of {agent!r}: got shape {places.shape}; wanted (k, {d})")
        if not (near := domain.is_near(places)).all():
            place = places[int(np.argmin(near))].tolist()
            raise ShapeError(f"candidates of {agent!r}: got {place}; wanted finite numbers, in or near the box")
        checked[agent] = places
    return checked


def places_to_recommend(domain: Domain, measured: Float[np.ndarray, "n d"], seed: int) -> Float[np.ndarray, "m d"]:
    """2,048 quasi-random locations of a box, and the measured ones in it."""
    unit = sobol(_N_RECOMMENDED, domain.n_dims, stream(seed, "recommendation"))
    inside = ((domain.low <= measured) & (domain.high >= measured)).all(axis=1)
    return np.concatenate([domain.from_unit(unit), measured[inside]])

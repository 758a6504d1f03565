"""Where a robot will measure on its ways, for those who plan them."""

from itertools import pairwise

import numpy as np
from jaxtyping import Float

from swarmbo_envs.robot_team.driving import Driver
from swarmbo_envs.robot_team.homing import SLACK
from swarmbo_envs.robot_team.settings import Rules


def stops_on_ways(
    driver: Driver,
    rules: Rules,
    round_time_s: float,
    origin: Float[np.ndarray, " 2"],
    places: Float[np.ndarray, "m 2"],
) -> Float[np.ndarray, "m k 2"]:
    """Where a robot would measure before it is at each of some places, besides where rounds end.

    First turns are left out, and of a way of several rounds all are taken to get equally far.

    Args:
        driver: Its motion.
        rules: How often it measures.
        round_time_s: Time to drive in a round.
        origin: Where it sets out.
        places: Where it may go.

    Returns:
        In turn; who measures less often on its way than others has rows of NaN at the end.
    """
    ways = dict[int, list[int]]()
    fan, by = None, np.zeros(len(places), dtype=int)
    if not driver.is_plain:
        fan = driver.ways.fan(np.array([*origin, np.nan]))
        by = driver.ways.arrivals(fan, places)[1]
    for place, last in enumerate(by.tolist()):
        ways.setdefault(last, []).append(place)
    found = list[tuple[list[int], Float[np.ndarray, "g k 2"]]]()
    for last, group in ways.items():
        if last >= 0:
            bends = np.array([origin, *(driver.ways.bends(fan, last) if fan is not None else [])])
            found.append((group, _stops_over(driver, rules, round_time_s, bends, places[group])))
    out = np.full((len(places), max((stops.shape[1] for _, stops in found), default=0), 2), np.nan)
    for group, stops in found:
        out[group, : stops.shape[1]] = stops
    return out


def _stops_over(
    driver: Driver, rules: Rules, round_time_s: float, bends: Float[np.ndarray, "b 2"], places: Float[np.ndarray, "g 2"]
) -> Float[np.ndarray, "g k 2"]:
    """Where a robot measures on its ways over the same bends to several places."""
    between = np.hypot(*np.diff(bends, axis=0).T)
    offset = places - bends[-1]
    last = np.hypot(offset[:, 0], offset[:, 1])
    times = driver.ways.straight_times(bends[-1:], places)[0]
    for start, end in pairwise(bends):
        times = times + driver.ways.straight_times(start[None], end[None])[0, 0]
    length, begun = between.sum() + last, np.append(0.0, np.cumsum(between))
    rounds = np.maximum(np.ceil(times / (round_time_s * SLACK)), 1.0)  # as travel_rounds has them
    each = np.where(rounds > 1, length * round_time_s / np.maximum(times, round_time_s), length)
    begins = each[:, None] * np.arange(rounds.max())
    parts = np.clip(length[:, None] - begins, 0.0, each[:, None])  # metres of each round
    if rules.sample_every_m is not None:
        stops = np.arange(1, np.ceil(parts.max() / rules.sample_every_m) + 1) * rules.sample_every_m
        after = np.where(stops < parts[:, :, None] * (1 - 1e-9), stops, np.nan)
    else:
        shares = np.arange(1, rules.samples_per_leg + 1) / (rules.samples_per_leg + 1)
        after = np.where(parts[:, :, None] > 0, parts[:, :, None] * shares, np.nan)
    at = np.sort((begins[:, :, None] + after).reshape(len(places), -1), axis=1)  # NaN last
    at = at[:, : int(np.isfinite(at).sum(axis=1).max())]
    out = np.full((*at.shape, 2), np.nan)
    for n, (start, end) in enumerate(pairwise(bends)):
        on = (at > begun[n]) & (at <= begun[n + 1])
        out[on] = start + ((at[on] - begun[n]) / between[n])[:, None] * (end - start)
    on = at > begun[-1]
    share = (at - begun[-1]) / np.maximum(last, np.finfo(float).tiny)[:, None]
    out[on] = (bends[-1] + share[:, :, None] * offset[:, None])[on]
    return out

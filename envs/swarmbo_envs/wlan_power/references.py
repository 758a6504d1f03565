"""Reference settings of a WLAN: the reference optimum, and results of heuristic baselines."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from scipy.special import expit

from swarmbo.boundary.rng import sobol, stream
from swarmbo.errors import ConfigError
from swarmbo_envs.shared import Pair, Values
from swarmbo_envs.wlan_power.network import FLOOR_MBPS, Network, Utility, greedy_colouring, levels, settings_at

# with 64 or more starts, topologies of seeds 0 to 19 with full airtime give the same maximum to 1e-6 Mbit/s
_STARTS = 512
_MOST_LOSSES = 2**23  # path losses in all climbs together: a larger network gets fewer climbs
# climbs on smooth surrogates, and ends improved by coordinate search: without and with a largest rate of links
_ROUGH, _CAPPED = (128, 16), (64, 4)
_SHARPNESS = (2.0, 8.0, 32.0)  # of a surrogate, per unit of a logarithm of a rate
_SHARPER = (10.0, 1e2, 1e3, 1e4, 1e5)  # the same if links have a largest rate, also per share of that rate
_LEVELS = 25
_BISECTIONS, _SYSTEMS = 50, 1000
_MOST_REMOVED = 256  # users
_DRAWN_PER_SEARCH = 8  # drawn channel plans for each plan whose powers are improved, too
SUM = Utility()


@functools.lru_cache(maxsize=256)
def best_known(
    network: Network, low: float, high: float, starts: int | None = None, utility: Utility = SUM
) -> tuple[tuple[float, ...], float]:
    """Best joint setting found for the noise-free network; cached by network.

    | utility | method |
    |---|---|
    | ``sum``, ``proportional-fair`` | best of many climbs by L-BFGS-B, with the analytic gradient |
    | ``minimum-rate`` | bisection of the rate: a few linear systems decide if all users can have it, and give the \
    least powers for it. This is the true maximum, to 1e-9 of it |
    | others, and the first two with a largest rate | climbs on smooth surrogates that become sharper, then \
    coordinate search on 25 levels; for ``users-above`` also from the powers after removing the worst-served users, \
    one at a time, until all others can have the rate |

    With channels: coordinate search over all settings and a climb of the powers (of ``minimum-rate``: the bisection)
    take turns. They start at drawn settings, and at the best channels found at largest power.

    All but ``minimum-rate`` have many local maxima, most of them in corners where some access points use the least
    power. Climbs start at a scrambled Sobol sequence; every other start is moved to the nearest corner. The result is a
    lower bound on the maximum, not a proof.

    Source: Yates 1995, A framework for uplink power control in cellular radio systems, theorems 1 and 2, for
    feasibility and least powers; Howard 1960, Dynamic programming and Markov processes, for their iteration; Zander
    1992, Performance of optimum transmitter power control in cellular radio systems, for removals.

    There are 512 ``starts`` by default, and fewer, but at least 16, if access points times users are more than 16,384.
    Returns the joint setting (powers in dBm, then positions of channels and widths), and its utility, in its unit.
    """
    if starts is None:
        starts = min(_STARTS, max(16, _MOST_LOSSES // max(network.n_points * len(network.present), 1)))
    if network.spectrum is not None:
        place = _best_with_channels(network, low, high, max(1, starts // 8), utility)
    elif utility.name == "minimum-rate":
        place = _max_min_powers(network, low, high)
    elif _is_smooth(network, utility):
        ends = (_climb(network, utility, x, (low, high)) for x in _starts(network, low, high, starts))
        place = max(ends, key=lambda end: end[0])[1]
    else:
        n_starts, n_polished = _ROUGH if np.isinf(network.link.cap_mbps) else _CAPPED
        starting_powers = _starts(network, low, high, min(starts, n_starts))
        tops = [_climb(network, utility, x, (low, high))[1] for x in starting_powers]
        if utility.name == "users-above" and 0 < network.present.sum() <= _MOST_REMOVED:
            tops.append(_after_removals(network, low, high, utility.rate_mbps))
        best = np.argsort(-utility.value(network, np.array(tops)), kind="stable")[:n_polished]
        polished = [_coordinate_search(network, low, high, utility, tops[i]) for i in best]
        place = polished[int(utility.value(network, np.array(polished)).argmax())]
    return tuple(place.tolist()), float(utility.value(network, place[None])[0])


def _starts(network: Network, low: float, high: float, starts: int) -> list[Values]:
    unit = sobol(starts, network.n_points, stream(0, "best known powers"))
    unit[1::2] = np.round(unit[1::2])
    return [low + share * (high - low) for share in (np.ones(network.n_points), *unit)]


def _is_smooth(network: Network, utility: Utility) -> bool:
    return utility.name in ("sum", "proportional-fair") and np.isinf(network.link.cap_mbps)


def _climb(network: Network, utility: Utility, x: Values, limits: Pair) -> tuple[float, Values]:
    """Value and place at the end of one climb, on surrogates if the utility is not smooth."""
    stages, options = (1.0,), {"ftol": 1e-13, "gtol": 1e-7}
    if not _is_smooth(network, utility):
        stages, options = _SHARPNESS if np.isinf(network.link.cap_mbps) else _SHARPER, {"maxiter": 60}
    arguments: Any = {"jac": True, "method": "L-BFGS-B", "bounds": [limits] * len(x), "options": options}
    value = -np.inf
    for sharpness in stages:
        found = minimize(_negative_utility, x, (network, utility, sharpness), **arguments)
        value, x = -float(found.fun), np.asarray(found.x, dtype=float)
    return value, x


def _negative_utility(x: Values, network: Network, utility: Utility, sharpness: float) -> tuple[float, Values]:
    """Negative utility and its gradient, or those of a smooth surrogate, which is closer with larger ``sharpness``."""
    present, slope, (rates, gradient) = network.present, np.ones(len(network.present)), network.uncapped_rates(x)
    if np.isfinite(network.link.cap_mbps):
        largest = network.largest_rates
        rest = sharpness * (1.0 - rates / largest)
        rates, slope = largest * (1.0 - np.logaddexp(0.0, rest) / sharpness), expit(rest)
    if utility.name == "sum":
        return -float(rates.sum()), -gradient(slope)
    is_low, rates = rates <= FLOOR_MBPS, np.maximum(rates, FLOOR_MBPS)
    if utility.name == "proportional-fair":
        weights = np.where(present & ~is_low, 1.0 / rates, 0.0)
        return -float((np.log(rates) * present).sum()), -gradient(slope * weights)
    if utility.name == "users-above":
        share = np.where(present, expit(sharpness * (np.log(rates) - np.log(utility.rate_mbps))), 0.0)
        return -float(share.sum()), -gradient(slope * (sharpness * share * (1.0 - share) / rates))
    value, weights = 0.0, np.zeros(len(rates))
    for i in np.flatnonzero(network.n_users):
        own = np.flatnonzero(present & (network.serving == i))
        powers = (rates[own] / rates[own].min()) ** -sharpness
        mean = powers.mean()
        value += (least := float(rates[own].min() * mean ** (-1.0 / sharpness)))  # a power mean, of order -sharpness
        weights[own] = least * powers / (mean * len(own) * rates[own])
    return -value, -gradient(slope * weights)


def _coordinate_search(network: Network, low: float, high: float, utility: Utility, x: Values, at: int = 0) -> Values:
    """Coordinate search: set each entry of index >= ``at`` to its best level, others fixed, until none improves."""
    axes, best = levels(network, low, high, _LEVELS), float(utility.value(network, x[None])[0])
    unchanged, i = 0, at
    while unchanged < len(x) - at:
        candidates = np.repeat(x[None], len(axes[i]), axis=0)
        candidates[:, i] = axes[i]
        values = utility.value(network, candidates)
        unchanged += 1
        if values.max() > best + 1e-12 * abs(best):
            best, x, unchanged = float(values.max()), candidates[values.argmax()], 1
        i = i + 1 if i + 1 < len(x) else at
    return x


def _best_with_channels(network: Network, low: float, high: float, n_plans: int, utility: Utility) -> Values:
    """Best of searches from drawn settings, and from channels (drawn or by greedy colouring) improved at full power."""
    k = network.n_points
    unit = sobol(n_plans, len(levels(network, low, high, 2)), stream(0, "best known channels"))
    drawn = settings_at(network, unit, low, high)
    loud = [np.concatenate([np.full(k, high), x[k:]]) for x in drawn]
    searched = [_coordinate_search(network, low, high, utility, x, k) for x in [greedy_colouring(network, high), *loud]]
    best = np.argsort(-utility.value(network, np.array(searched)), kind="stable")[: n_plans // _DRAWN_PER_SEARCH + 1]
    starts = [*(searched[i] for i in best), *drawn[: 2 * (n_plans // _DRAWN_PER_SEARCH)]]
    ends = np.array([_alternating_search(network, low, high, utility, x) for x in starts])
    return ends[int(utility.value(network, ends).argmax())]


def _alternating_search(network: Network, low: float, high: float, utility: Utility, x: Values) -> Values:
    k, best_value, best_point = network.n_points, -np.inf, x
    while (value := float(utility.value(network, x[None])[0])) - 1e-9 * abs(value) > best_value:
        best_point, best_value, network_of_plan = x, value, network.on(x[k:])
        powers = x[:k]
        if utility.name == "minimum-rate":
            powers = _max_min_powers(network_of_plan, low, high)
        elif _is_smooth(network_of_plan, utility) or np.isfinite(network_of_plan.link.cap_mbps):
            powers = _climb(network_of_plan, utility, powers, (low, high))[1]
        x = _coordinate_search(network, low, high, utility, np.concatenate([powers, x[k:]]))
    return best_point


def _least_powers(
    network: Network, wanted: Bool[np.ndarray, " m"], sinr: Float[np.ndarray, " m"], low: float, high: float
) -> tuple[Values, bool]:
    """Least powers in mW, none below the lowest, at which wanted users have their SINR; and their feasibility."""
    # The needs of each access point's most demanding user, or the lowest power, form a linear system. A positive
    # solution is the least one; other users may then be the most demanding. So powers only rise from one system to the
    # next, and the iteration ends after a few of finitely many systems.
    gains, disturbing = network.gains
    users, serving = np.flatnonzero(wanted), network.serving[wanted]
    gains_wanted = gains[users, serving]
    lowest, highest, k = 10.0 ** (low / 10.0), 10.0 ** (high / 10.0), network.n_points
    power, sinr, noise = np.full(k, lowest), sinr[users], network.user_noise_mw[users]
    if not np.isfinite(sinr).all():
        return np.full(k, highest), False
    for _ in range(_SYSTEMS):
        needed = sinr * (noise + disturbing[users] @ power) / gains_wanted
        raised = np.full(k, lowest)
        np.maximum.at(raised, serving, needed)
        if (raised <= power * (1.0 + 1e-12)).all():
            return power, True
        coefficients, constants = np.eye(k), np.full(k, lowest)
        for i in np.flatnonzero(raised > lowest):
            neediest = np.flatnonzero(serving == i)[needed[serving == i].argmax()]
            coefficients[i] -= sinr[neediest] * disturbing[users[neediest]] / gains_wanted[neediest]
            constants[i] = sinr[neediest] * noise[neediest] / gains_wanted[neediest]
        try:
            solved = np.linalg.solve(coefficients, constants)
        except np.linalg.LinAlgError:  # exactly at the edge of feasibility
            return np.minimum(raised, highest), False
        if not ((solved > 0.0) & (solved <= highest * (1.0 + 1e-12))).all():
            return np.minimum(raised, highest), False
        power = np.maximum(solved, lowest)
    return power, False


def _max_min_powers(network: Network, low: float, high: float) -> Values:
    present = network.present
    best = np.full(network.n_points, high)
    if not present.any():
        return best
    sinr_alone = 10.0 ** (high / 10.0) * network.gains[0].sum(axis=1) / network.user_noise_mw
    logs = [np.log(network.rates(sinr)[present].min()) for sinr in (network.sinr(best[None])[0], sinr_alone)]
    for _ in range(_BISECTIONS):
        middle = 0.5 * (logs[0] + logs[1])
        powers, is_feasible = _least_powers(network, present, network.needed_sinr(float(np.exp(middle))), low, high)
        logs[0 if is_feasible else 1] = middle
        if is_feasible:
            best = np.clip(10.0 * np.log10(powers), low, high)
    return best


def _after_removals(network: Network, low: float, high: float, rate_mbps: float) -> Values:
    """Powers at which all but removed users have a rate: first those in too full cells go, then the worst served."""
    sinr = network.needed_sinr(rate_mbps) * (1.0 + 1e-9)
    wanted = network.present & np.isfinite(sinr)
    while True:
        powers, is_feasible = _least_powers(network, wanted, sinr, low, high)
        x = np.clip(10.0 * np.log10(powers), low, high)
        if is_feasible or wanted.sum() <= 1:
            return x
        wanted[np.flatnonzero(wanted)[(network.sinr(x[None])[0] / sinr)[wanted].argmin()]] = False


@dataclass(frozen=True, eq=False)
class Reference:
    """Result of a heuristic baseline.

    Args:
        point: Joint setting (d,): powers, dBm, and positions of choices.
        value: Noise-free utility, in its unit.
        evaluations: Joint settings that it tried, including the last.
    """

    label: str
    point: Values
    value: float
    evaluations: int


def references(
    network: Network,
    low: float,
    high: float,
    *,
    budget: int = 60,
    n_levels: int = 5,
    seed: int = 0,
    utility: Utility = SUM,
) -> dict[str, Reference]:
    """Noise-free results of heuristic baselines within a budget of joint settings.

    | name | procedure |
    |---|---|
    | ``maximum`` | all at largest power, on one channel |
    | ``equal`` | best of ``budget`` equal powers, on one channel |
    | ``random`` | best of ``budget`` uniform joint settings |
    | ``independent`` | rounds in which all access points try all levels at the same time; each keeps the level at \
    which its own users got most; not with channels |
    | ``greedy`` | access points, in order, try widths, channels and levels, and keep that at which the network got \
    most |
    | ``colouring`` | with channels only: greedy colouring, all at largest power; see ``greedy_colouring`` |

    Tuning starts in the middle of the range. Each baseline returns its best setting, except ``independent``, which
    measures no total and returns its last setting.

    Args:
        budget: Joint settings that each baseline may try, >= 1.
        n_levels: Power levels for tuning, evenly from least to largest, >= 2.
        seed: Seed of the random settings.
    """
    if budget < 1 or n_levels < 2:
        raise ConfigError(f"got budget {budget} and n_levels {n_levels}; wanted budget >= 1 and n_levels >= 2")
    axes = levels(network, low, high, n_levels)
    k, d = network.n_points, len(axes)
    has_channels = d > k
    powers = np.linspace(low, high, budget) if budget > 1 else np.array([high])
    random_settings = settings_at(network, stream(seed, "random powers").random((budget, d)), low, high)

    def with_equal_powers(powers: np.ndarray) -> Float[np.ndarray, "n d"]:
        return np.repeat(powers[:, None], d, axis=1) * (np.arange(d) < k)

    middle = with_equal_powers(np.array([(low + high) / 2.0]))[0]
    value = functools.partial(utility.value, network)
    suffix = ", one channel" if has_channels else ""
    results = {
        "maximum": _best(f"all at maximum{suffix}", value, with_equal_powers(np.array([high]))),
        "equal": _best(f"best equal power{suffix}", value, with_equal_powers(powers)),
        "random": _best("random", value, random_settings),
    }
    if has_channels:
        results["colouring"] = _best("greedy colouring, all at maximum", value, greedy_colouring(network, high)[None])
    else:
        final, n_tried = _independent(functools.partial(utility.factor_values, network), middle, axes[0], budget)
        results["independent"] = Reference("independent tuning", final, float(value(final[None])[0]), n_tried)
    turns = np.arange(d).reshape(-1, k)[::-1].T.ravel()  # by access point: the width, the channel, the power
    return {**results, "greedy": _greedy(value, middle, axes, turns, budget)}


def _best(label: str, value: Callable[[np.ndarray], np.ndarray], tried: Float[np.ndarray, "n k"]) -> Reference:
    values = value(tried)
    return Reference(label, tried[values.argmax()], float(values.max()), len(tried))


def _independent(
    outcomes: Callable[[np.ndarray], np.ndarray], x: Values, grid: np.ndarray, budget: int
) -> tuple[Values, int]:
    """Last setting, and the number tried; access points try levels in shifted orders: not all are loud at once."""
    k, n_tried, levels = len(x), 0, len(grid)
    while n_tried + levels < budget:
        candidates = grid[(np.arange(levels)[:, None] + np.arange(k)[None]) % levels]
        chosen = candidates[outcomes(candidates).argmax(axis=0), np.arange(k)]
        n_tried += levels
        if (chosen == x).all():
            break
        x = chosen
    return x, n_tried + 1


def _greedy(
    value: Callable[[np.ndarray], np.ndarray], x: Values, axes: list[np.ndarray], turns: np.ndarray, budget: int
) -> Reference:
    best, n_tried, turn, unchanged = float(value(x[None])[0]), 1, 0, 0
    while n_tried < budget and unchanged < len(x):
        setting = turns[turn % len(x)]
        candidates = np.repeat(x[None], min(len(axes[setting]), budget - n_tried), axis=0)
        candidates[:, setting] = axes[setting][: len(candidates)]
        values = value(candidates)
        n_tried += len(candidates)
        unchanged += 1
        if values.max() > best:
            x, best, unchanged = candidates[values.argmax()], float(values.max()), 0
        turn += 1
    return Reference("sequential greedy", x, best, n_tried)

"""What people do without a team: simple ways to set powers, and what they reach."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo_envs.wlan_power.best_known import SUM
from swarmbo_envs.wlan_power.network import Network
from swarmbo_envs.wlan_power.utility import Utility


@dataclass(frozen=True, eq=False)
class Reference:
    """Where a simple way ends.

    Args:
        label: What it is, in a few words.
        powers: Transmit powers (k,), dBm.
        value: What the network has there, without noise, in the unit of the utility.
        evaluations: Joint settings that it tried, the last one included.
    """

    label: str
    powers: Float[np.ndarray, " k"]
    value: float
    evaluations: int


def references(
    network: Network,
    low: float,
    high: float,
    *,
    budget: int = 60,
    levels: int = 5,
    seed: int = 0,
    utility: Utility = SUM,
) -> dict[str, Reference]:
    """What simple ways reach within a budget of joint settings, each measured without noise.

    | name | what happens |
    |---|---|
    | ``maximum`` | all at largest power |
    | ``equal`` | the best of ``budget`` equal powers |
    | ``random`` | the best of ``budget`` uniform joint settings |
    | ``independent`` | rounds in which every access point tries each level, all at the same time, and takes the one \
at which its own users got most |
    | ``greedy`` | access points in turn each try each level, and keep the one at which the network got most |

    Tuning starts in the middle of the range. Each way ends with the best setting that it has seen, but ``independent``,
    which knows no total: it ends where it settles.

    Args:
        network: The access points and users.
        low: Least power, dBm.
        high: Largest power, dBm.
        budget: Joint settings that each way may try, >= 1.
        levels: Powers that tuning chooses between, evenly from least to largest, >= 2.
        seed: Of the random ones.
        utility: What is to be largest.

    Raises:
        ConfigError: If budget or levels are out of range.
    """
    if budget < 1 or levels < 2:
        raise ConfigError(f"got budget {budget} and levels {levels}; wanted budget >= 1 and levels >= 2")
    k = network.n_points
    grid = np.linspace(low, high, levels)
    even = np.linspace(low, high, budget) if budget > 1 else np.array([high])
    drawn = low + stream(seed, "random powers").random((budget, k)) * (high - low)
    middle = np.full(k, (low + high) / 2.0)

    def value(X: np.ndarray) -> np.ndarray:
        return utility.value(network, X)

    def outcomes(X: np.ndarray) -> np.ndarray:
        return utility.factor_values(network, X)

    settled, used = _independent(outcomes, middle, grid, budget)
    return {
        "maximum": _best("all at maximum", value, np.full((1, k), high)),
        "equal": _best("best equal power", value, np.repeat(even[:, None], k, axis=1)),
        "random": _best("random", value, drawn),
        "independent": Reference("independent tuning", settled, float(value(settled[None])[0]), used),
        "greedy": _greedy(value, middle, grid, budget),
    }


def _best(label: str, value: Callable[[np.ndarray], np.ndarray], tried: Float[np.ndarray, "n k"]) -> Reference:
    values = value(tried)
    return Reference(label, tried[values.argmax()], float(values.max()), len(tried))


def _independent(
    outcomes: Callable[[np.ndarray], np.ndarray], x: Float[np.ndarray, " k"], grid: np.ndarray, budget: int
) -> tuple[Float[np.ndarray, " k"], int]:
    """Everybody tries the levels in an order of its own, shifted by its number, so that not all are loud together."""
    k, used, levels = len(x), 0, len(grid)
    while used + levels < budget:
        tried = grid[(np.arange(levels)[:, None] + np.arange(k)[None]) % levels]
        chosen = tried[outcomes(tried).argmax(axis=0), np.arange(k)]
        used += levels
        if (chosen == x).all():
            break
        x = chosen
    return x, used + 1


def _greedy(
    value: Callable[[np.ndarray], np.ndarray], x: Float[np.ndarray, " k"], grid: np.ndarray, budget: int
) -> Reference:
    best, used, turn, unchanged = float(value(x[None])[0]), 1, 0, 0
    while used < budget and unchanged < len(x):
        tried = np.repeat(x[None], min(len(grid), budget - used), axis=0)
        tried[:, turn % len(x)] = grid[: len(tried)]
        values = value(tried)
        used += len(tried)
        unchanged += 1
        if values.max() > best:
            x, best, unchanged = tried[values.argmax()], float(values.max()), 0
        turn += 1
    return Reference("sequential greedy", x, best, used)

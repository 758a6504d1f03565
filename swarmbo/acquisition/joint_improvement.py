"""Expected improvement of a batch of places, as a sum with a term for each agent of a chain.

With M_n the largest of the best known value and of the field at the places of all agents after n,

    max(f(x_1), …, f(x_N), best) - best = Σ_n max(f(x_n) - M_n, 0):

each term is the gain of agent n over those after it. So the batch's expected improvement (q-EI) is exactly the sum of
the expectations of these terms. The Markov approximation lets agent n see the next B only, and then overstates its
gain, like the information of a batch.

The expectation is taken in two steps. Given the field at the successors' places, f(x_n) is normal, and its improvement
over their maximum has a closed form; it is averaged over the successors by quasi-Monte Carlo, at fixed points. With B =
0 nothing is averaged. Values are above zero wherever an improvement is possible.

Source: Ginsbourger, Le Riche & Carraro 2010, eq. (5), for q-EI; Desautels et al. 2014 for sequential choice.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from swarmbo.acquisition.local_utility import PlaceUtility
from swarmbo.acquisition.log_improvement import log_improvement
from swarmbo.acquisition.markov import Block
from swarmbo.boundary.rng import sobol, stream

_NODES = 32  # of the average over successors in a table; Sobol sequences are balanced at powers of two
_MORE_NODES = 512  # for one choice, with any number of others
_DENSITY = 1.0 / np.sqrt(2.0 * np.pi)
_LEAST_STD = 1e-100  # of the distance to the improved value
_FLOOR = 1e-12  # of the largest variance in a block, below which a variance is rounding


@dataclass(frozen=True)
class JointImprovement(PlaceUtility):
    """Expected improvement over a value, and of a batch over that and over each other.

    Args:
        over: Value to improve on, in the unit of the field.
        opt_out_utility: Utility of not measuring: no improvement.

    Example:
        >>> import numpy as np
        >>> rule = JointImprovement(over=1.0)
        >>> rule.single(np.array([1.0, 0.0]), np.array([1.0, 1e-4])).round(3).tolist()  # 0.4 std where the mean is best
        [0.399, 0.0]
        >>> cov = np.array([[1.0, 1.0], [1.0, 1.0]])  # two looks at one value
        >>> rule.of_first(np.array([1.0, 1.0]), cov) < 1e-5  # the first adds nothing to the second
        True
    """

    over: float
    opt_out_utility: float = 0.0
    in_order: ClassVar[bool] = True

    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Expected improvement of single places."""
        return np.exp(self.rank(mean, var))

    def rank(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Logarithm of the improvement, which also orders places with almost none."""
        gap = mean - self.over
        least = _LEAST_STD * np.abs(gap) + np.finfo(float).tiny  # with smaller ones z² would overflow
        return log_improvement(gap, np.maximum(np.sqrt(var), least))[0]

    def table(self, block: Block, price: float) -> Float[np.ndarray, "..."]:
        """Gain of the first agent's candidates over the best known value and its successors', minus the price."""
        n = len(block.means)
        there = [block.on_axes(own, i) for i, own in enumerate(block.measures)]
        if n == 1:
            value = self.single(block.means[0], block.variances[0])
        else:
            spread, left = _whitened(block)
            std, mean = np.sqrt(left), [block.on_axes(own, i) for i, own in enumerate(block.means)]
            value, nodes = np.zeros(block.shape), _nodes(n - 1, _NODES)
            for node in nodes:
                most = np.full((1,) * n, self.over)
                for i in range(1, n):
                    own = mean[i] + sum(node[k - 1] * spread[i, k] for k in range(1, i + 1))
                    most = np.maximum(most, np.where(there[i], own, -np.inf))
                first = mean[0] + sum(node[k - 1] * spread[0, k] for k in range(1, n))
                value += _improvement(first - most, std)
            value /= len(nodes)
        return np.where(there[0], value - price, self.opt_out_utility)

    def of_first(
        self, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"], to_the_letter: bool = False
    ) -> float:
        """The same of one choice, more precisely, for any number of others."""
        if len(mean) == 1:
            return float(self.single(mean, cov[0])[0])
        floor = _floor(np.diag(cov))
        root = np.linalg.cholesky(cov[1:, 1:] + floor * np.eye(len(mean) - 1))
        spread, nodes = np.linalg.solve(root, cov[1:, 0]), _nodes(len(mean) - 1, _MORE_NODES)
        most = np.maximum(self.over, (mean[1:] + nodes @ root.T).max(axis=1))
        std = np.sqrt(max(cov[0, 0] - float(spread @ spread), floor))
        return float(_improvement(mean[0] + nodes @ spread - most, np.array(std)).mean())


def _improvement(mean: Float[np.ndarray, "..."], std: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """E[max(Y, 0)] of normal Y, with an error of 1e-16 of the spread, negligible in an average."""
    z = mean / std
    density = np.exp(-0.5 * z * z)
    density *= _DENSITY
    return np.maximum(std * (density + z * ndtr(z)), 0.0)


def _floor(var: Float[np.ndarray, " k"]) -> float:
    return max(_FLOOR * float(var.max()), float(np.finfo(float).tiny))


def _whitened(block: Block) -> tuple[dict[tuple[int, int], np.ndarray], np.ndarray]:
    """Field at candidates as a function of independent standard normals, one for each successor.

    Returns:
        spread[i, k]: loading of agent i's candidates on the k-th normal, 1 <= k <= i (all k for i = 0); and the
        remaining variance at the first agent's.
    """
    n = len(block.means)
    left = {(i, i): block.on_axes(block.variances[i], i) for i in range(n)}
    left |= {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(n) for j in range(i + 1, n)}
    floor = _floor(np.concatenate(block.variances))
    spread: dict[tuple[int, int], np.ndarray] = {}
    for k in range(1, n):
        root = np.sqrt(np.maximum(left[k, k], floor))
        spread[k, k] = root
        rest = [0, *range(k + 1, n)]
        for i in rest:
            spread[i, k] = left[min(i, k), max(i, k)] / root
        for place, i in enumerate(rest):
            for j in rest[place:]:
                left[i, j] = left[i, j] - spread[i, k] * spread[j, k]
    return spread, np.maximum(left[0, 0], floor)


@functools.cache
def _nodes(n_dims: int, count: int) -> Float[np.ndarray, "m n"]:
    """Points for averages over independent standard normals."""
    return ndtri(sobol(count, n_dims, stream(0, "joint improvement", n_dims=n_dims)))

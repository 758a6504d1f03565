"""Expected improvement over the incumbent: for functions per factor, in fields per agent of a batch.

The improvement E[max(Y, 0)] of a normal Y is std h(z) with z = mean / std and h(z) = phi(z) + z Phi(z). For z -> -inf
both terms of h cancel; there h(z) = phi(z) (1 + z R(z)) with the Mills ratio R = Phi/phi, and far out the series of
1 + z R in 1/z².

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
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, ndtr, ndtri

from swarmbo.acquisition import utility
from swarmbo.acquisition.box_functions import ContrastFunctions
from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.local_utility import PlaceUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.cholesky import root_of
from swarmbo.belief.model import JointSituation, Model
from swarmbo.belief.model.incumbents import to_beat
from swarmbo.boundary import rng
from swarmbo.graph import FactorStack
from swarmbo.registry import FIELD, FUNCTION, kind

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_FAR = -20.0  # below it the series is more accurate; above it the cancellation is tolerable
_SERIES = np.cumprod([1.0, *(-(2.0 * k + 1.0) for k in range(1, 10))])  # 1, -3, 15, -105, …


def log_improvement(mean: utility.Table, std: utility.Table) -> tuple[utility.Table, utility.Table, utility.Table]:
    """Log E[max(Y, 0)] of normal Y (std > 0), and derivatives in mean and std (Ament et al. 2023, section 4)."""
    log_h, cdf_ratio, pdf_ratio = _ratios(mean / std)
    return log_h + np.log(std), cdf_ratio / std, pdf_ratio / std


@dataclass(frozen=True, eq=False, kw_only=True)
class LogImprovements(ContrastFunctions):
    """The local functions log E[max(f_i(u) - f_i(reference), 0)]."""

    is_over_beaten: ClassVar[bool] = True

    @classmethod
    def over_incumbent(cls, belief: AdditiveGP) -> "LogImprovements":
        """Improvements on the unit cube over the best of the evaluated and the expected pending points."""
        return cls.on_cube(belief, reference=to_beat(belief))

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Log expected improvement; the improvement is in the unit of the belief."""
        return log_improvement(mean, std)


def _ratios(z: utility.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log h(z), Phi(z)/h(z) and phi(z)/h(z)."""
    right = np.maximum(z, -1.0)
    density = np.exp(-0.5 * right**2 - _LOG_SQRT_2PI)
    h = density + right * ndtr(right)
    # each branch gets arguments in its own range only, so that it does not overflow where another branch applies
    left, tail = np.clip(z, _FAR, -1.0), erfcx(-np.minimum(z, -1.0) / np.sqrt(2.0))
    mills = np.sqrt(0.5 * np.pi) * tail
    square = np.minimum(z, _FAR) ** -2.0
    series = square * np.polynomial.polynomial.polyval(square, _SERIES)
    share = np.where(z < _FAR, series, 1.0 + left * np.sqrt(0.5 * np.pi) * tail)
    is_right = z > -1.0
    log_h = np.where(is_right, np.log(h), -0.5 * np.minimum(z, -1.0) ** 2 - _LOG_SQRT_2PI + np.log(share))
    return log_h, np.where(is_right, ndtr(right) / h, mills / share), np.where(is_right, density / h, 1.0 / share)


_NODES = 32  # points in an average over successors in a table; Sobol sequences are balanced at powers of two
_MORE_NODES = 512  # the same for one choice, given any number of others
_DENSITY = 1.0 / np.sqrt(2.0 * np.pi)
_LEAST_STD = 1e-100  # share of the distance to the value to improve on
_FLOOR = 1e-12  # share of the largest variance in a block: smaller variances are rounding


@dataclass(frozen=True)
class JointImprovement(PlaceUtility):
    """Expected improvement over a value; in a batch, also over the values at successors' places."""

    over: float  # value to improve on, in the unit of the field
    opt_out_utility: float = 0.0  # utility of not measuring: no improvement
    in_order: ClassVar[bool] = True

    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Expected improvement of single places."""
        return np.exp(self.rank(mean, var))

    def rank(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Logarithm of the improvement, which also ranks locations with almost no expected improvement."""
        gap = mean - self.over
        least = _LEAST_STD * np.abs(gap) + np.finfo(float).tiny  # with smaller numbers z² would overflow
        std = np.maximum(np.sqrt(var), least)
        return _ratios(gap / std)[0] + np.log(std)  # derivatives of `log_improvement` would overflow

    def table(self, block: utility.Block, price: float) -> utility.Table:
        """Gain of the first agent's candidates over the best known value and its successors', minus the price."""
        n = len(block.means)
        measures = [block.on_axes(values, i) for i, values in enumerate(block.measures)]
        if n == 1:
            value = self.single(block.means[0], block.variances[0])
        else:
            spread, rest_variance = _whitened(block)
            std, mean = np.sqrt(rest_variance), [block.on_axes(values, i) for i, values in enumerate(block.means)]
            value, nodes = np.zeros(block.shape), _nodes(n - 1, _NODES)
            for node in nodes:
                beaten = np.full((1,) * n, self.over)
                for i in range(1, n):
                    values = mean[i] + sum(node[k - 1] * spread[i, k] for k in range(1, i + 1))
                    beaten = np.maximum(beaten, np.where(measures[i], values, -np.inf))
                own_mean = mean[0] + sum(node[k - 1] * spread[0, k] for k in range(1, n))
                value += _improvement(own_mean - beaten, std)
            value /= len(nodes)
        return np.where(measures[0], value - price, self.opt_out_utility)

    def of_first(
        self, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"], to_the_letter: bool = False
    ) -> float:
        """One entry of ``table``: a choice given any number of others; more precise than ``table``."""
        if len(mean) == 1:
            return float(self.single(mean, cov[0])[0])
        floor = _floor(np.diag(cov))
        root = root_of(cov[1:, 1:] + floor * np.eye(len(mean) - 1))
        spread, nodes = np.linalg.solve(root, cov[1:, 0]), _nodes(len(mean) - 1, _MORE_NODES)
        # f(x_1) given the others is normal with the same loadings, so both use the same nodes
        beaten = np.maximum(self.over, (mean[1:] + nodes @ root.T).max(axis=1))
        std = np.sqrt(max(cov[0, 0] - float(spread @ spread), floor))
        return float(_improvement(mean[0] + nodes @ spread - beaten, np.array(std)).mean())


def _improvement(mean: utility.Table, std: utility.Table) -> utility.Table:
    """E[max(Y, 0)] of normal Y, with an error of 1e-16 of the spread, negligible in an average."""
    z = mean / std
    density = np.exp(-0.5 * z * z)
    density *= _DENSITY
    return np.maximum(std * (density + z * ndtr(z)), 0.0)


def _floor(var: Float[np.ndarray, " k"]) -> float:
    return max(_FLOOR * float(var.max()), float(np.finfo(float).tiny))


def _whitened(block: utility.Block) -> tuple[dict[tuple[int, int], np.ndarray], np.ndarray]:
    """Loadings [i, k] of agent i's candidates on successor k's normal, k <= i (all k for i = 0); residual variance."""
    n = len(block.means)
    covariances = {(i, i): block.on_axes(block.variances[i], i) for i in range(n)}
    covariances |= {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(n) for j in range(i + 1, n)}
    floor = _floor(np.concatenate(block.variances))
    spread: dict[tuple[int, int], np.ndarray] = {}
    for k in range(1, n):
        root = np.sqrt(np.maximum(covariances[k, k], floor))
        spread[k, k] = root
        agents = [0, *range(k + 1, n)]
        for i in agents:
            limit = np.sqrt(np.maximum(covariances[i, i], 0.0))  # largest loading, which rounding may exceed
            spread[i, k] = np.clip(covariances[min(i, k), max(i, k)] / root, -limit, limit)
        for index, i in enumerate(agents):
            for j in agents[index:]:
                covariances[i, j] = covariances[i, j] - spread[i, k] * spread[j, k]
    return spread, np.maximum(covariances[0, 0], floor)


@functools.cache
def _nodes(n_dims: int, count: int) -> Float[np.ndarray, "m n"]:
    return ndtri(rng.sobol(count, n_dims, rng.stream(0, "joint improvement", n_dims=n_dims)))


@kind("acquisition", FIELD, FUNCTION)
class ExpectedImprovement(ChainAcquisition, frozen=True, tag="expected-improvement"):
    """Expected improvement over the incumbent's value, in a field or of a function.

    In a field, a batch has the expected improvement E[max(f(x_1), …, f(x_N), best) - best]. Here, *best* is the largest
    posterior mean over all measured locations. This improvement is exactly the sum of each agent's gain over its
    successors in the chain, of which an agent considers only the next B. With prices, a measurement is worthwhile if
    its gain exceeds the price.

    For a function, the acquisition is the sum of the factors' log expected improvements: of f_i(x_i) over f_i at the
    incumbent. With one factor, this is log expected improvement. With several, it is a heuristic: every factor seeks a
    gain, although the sum may also rise while one factor loses. The incumbent is the evaluated point with the largest
    posterior mean. With outcomes per factor, it joins the best points of the connected parts.

    The settings are those of ``ChainAcquisition``, for fields. There are no settings for functions.

    Source: Mockus et al. 1978, Jones et al. 1998 (expected improvement); Ginsbourger et al. 2010 (batches); Ament et
        al. 2023 (logarithm).

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=sb.ExpectedImprovement())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))  # 0.4 is the best yet, the maximum is next to it
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.03)
        True
        >>> field, line = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition="expected-improvement"), x[:, None]
        >>> field.attach(line[::2], [0.0, 1.0, 1.0, 0.0, 0.0, 0.0])  # as much at 0.2 as at 0.4
        >>> sorted(round(float(place[0]), 1) for place in field.ask({"a": line, "b": line}).points.values())
        [0.3, 0.4]
    """

    goal = "peak"

    def utility(self, situation: Situation, n_agents: int | None = None) -> JointImprovement:
        """Expected improvement over the largest posterior mean of measured locations."""
        return JointImprovement(situation.best_measured())

    def local_functions(self, situation: JointSituation, model: Model) -> LogImprovements:
        """Log expected improvements of the factors."""
        return LogImprovements.over_incumbent(model.belief.by_factor_ahead)

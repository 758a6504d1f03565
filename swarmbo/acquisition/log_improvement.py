"""Log expected improvement: of a normal variable over zero, accurate for all arguments, and of factors as a sum.

With z = mean / std, h(z) = phi(z) + z Phi(z): E[max(Y, 0)] = std h(z). For z -> -inf both terms of h cancel; there h(z)
= phi(z) (1 + z R(z)) with the Mills ratio R = Phi/phi, and far out the series of 1 + z R in 1/z².
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import erfcx, ndtr

from swarmbo.acquisition.belief_functions import ContrastFunctions
from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.incumbents import to_beat
from swarmbo.graph import FactorStack, stacks_of

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_FAR = -20.0  # below it the series is more accurate; above it the cancellation is tolerable
_SERIES = np.cumprod([1.0, *(-(2.0 * k + 1.0) for k in range(1, 10))])  # 1, -3, 15, -105, …


def log_improvement(
    mean: Float[np.ndarray, "..."], std: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Logarithm of E[max(Y, 0)] for normal Y (std > 0), and its derivatives by mean and standard deviation.

    Source: Ament et al. 2023, section 4, for the use of the logarithm.

    Example:
        >>> value, by_mean, by_std = log_improvement(np.array([0.0, -40.0]), np.array([1.0, 1.0]))
        >>> value.round(3).tolist()
        [-0.919, -808.299]
    """
    z = mean / std
    log_h, cdf_ratio, pdf_ratio = _ratios(z)
    return log_h + np.log(std), cdf_ratio / std, pdf_ratio / std


@dataclass(frozen=True, eq=False, kw_only=True)
class LogImprovements(ContrastFunctions):
    """The local functions log E[max(f_i(u) - f_i(reference), 0)].

    Uses the difference's own posterior: offsets between factors, unknown from totals, cancel in it. The floor under the
    root keeps the value finite at the reference itself, where the difference is zero.
    """

    @classmethod
    def over_incumbent(cls, belief: AdditiveGP) -> "LogImprovements":
        """On the whole unit cube, over the best of the evaluated and the expected pending points."""
        return cls.on_cube(belief, reference=to_beat(belief))

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> "LogImprovements":
        """The same over the best evaluated or pending point."""
        return super().starting_from(best, columns, beaten)._over(beaten, columns)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's log expected improvement; the improvement is in the unit of the belief."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference)
        return log_improvement(marginals.mean, np.sqrt(marginals.var + self.variance_floor(stack)))[0]

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's log expected improvement and its gradient."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        std = np.sqrt(marginals.var + self.variance_floor(stack))
        value, by_mean, by_std = log_improvement(marginals.mean, std)
        return value, by_mean[..., None] * marginals.dmean + (0.5 * by_std / std)[..., None] * marginals.dvar


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitImprovements(BoxFunctions):
    """Log expected improvements of factors (``whole``), and of the ``parts`` of split ones."""

    whole: LogImprovements
    parts: dict[str, LogImprovements]

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's log expected improvement, in the unit of its own belief."""
        self.check_owned(stack)
        out = np.empty(U.shape[:2])
        for functions, sub, rows in self._by_source(stack):
            out[rows] = functions.value(sub, U[rows], received)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's log expected improvement and its gradient."""
        self.check_owned(stack)
        out, slopes = np.empty(U.shape[:2]), np.empty(U.shape)
        for functions, sub, rows in self._by_source(stack):
            out[rows], slopes[rows] = functions.value_and_gradient(sub, U[rows], received)
        return out, slopes

    def _by_source(self, stack: FactorStack) -> list[tuple[LogImprovements, FactorStack, list[int]]]:
        """Functions of the factors of a stack, each with a stack of its own graph, and its rows here."""
        sources = {part: split for split in self.parts for part in self.parts[split].graph.factors}
        rows: dict[str | None, list[int]] = {}
        for row, factor in enumerate(stack.factors):
            rows.setdefault(sources.get(factor), []).append(row)
        found = list[tuple[LogImprovements, FactorStack, list[int]]]()
        for split, own in rows.items():
            functions = self.whole if split is None else self.parts[split]
            (sub,) = stacks_of(functions.graph, [stack.factors[row] for row in own])
            by_name = {stack.factors[row]: row for row in own}
            found.append((functions, sub, [by_name[factor] for factor in sub.factors]))
        return found


def _ratios(z: Float[np.ndarray, "..."]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log h(z), Phi(z)/h(z) and phi(z)/h(z)."""
    right = np.maximum(z, -1.0)
    density = np.exp(-0.5 * right**2 - _LOG_SQRT_2PI)
    h = density + right * ndtr(right)
    left = np.clip(z, _FAR, -1.0)
    mills = np.sqrt(0.5 * np.pi) * erfcx(-np.minimum(z, -1.0) / np.sqrt(2.0))
    square = np.minimum(z, _FAR) ** -2.0
    share = np.where(
        z < _FAR,
        square * np.polynomial.polynomial.polyval(square, _SERIES),
        1.0 + left * np.sqrt(0.5 * np.pi) * erfcx(-left / np.sqrt(2.0)),
    )
    is_right = z > -1.0
    log_h = np.where(is_right, np.log(h), -0.5 * np.minimum(z, -1.0) ** 2 - _LOG_SQRT_2PI + np.log(share))
    return log_h, np.where(is_right, ndtr(right) / h, mills / share), np.where(is_right, density / h, 1.0 / share)

"""Bases of the local functions of acquisitions: terms of a sum over a box of the unit cube, one per factor."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.stack import Marginals
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack
from swarmbo.graph.box_functions import Climbing, Joint, Points, Received, Values
from swarmbo.graph.factor_graph import grouped
from swarmbo.problem.coding import Coding
from swarmbo.registry import invalid_result


@dataclass(frozen=True, eq=False, kw_only=True)
class ComposedFunctions(BoxFunctions):
    """Functions composed of ``others``, each of which has different factors: those it is ``owned`` for, or all of its
    graph. They read the same coordinates, unless a subclass converts these. Other factors have the value 0.
    """

    others: Sequence[BoxFunctions] = ()

    @classmethod
    def made_of(cls, inner: BoxFunctions, **own: Any) -> Self:
        """Make functions from another object, with its box and other fields, except the fields in ``own``."""
        inherited = {known.name: getattr(inner, known.name) for known in fields(BoxFunctions)}
        return cls(**(inherited | own), others=(inner,))

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of the other functions."""
        return max((one.n_exchanges for one in self.others), default=0)

    def of(self, factors: Iterable[str]) -> Self:
        """Functions of some factors only."""
        own = frozenset(factors)
        return replace(self, owned=own, others=[one.of(own & _factors_of(one)) for one in self.others])

    def starting_from(self, best: Joint, columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]) -> Self:
        """Functions that start from received points, as do the functions that they are made of."""
        others = [one.starting_from(best, columns, beaten) for one in self.others]
        return replace(super().starting_from(best, columns, beaten), others=others)

    def published(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Numbers that the functions publish; 0 for factors without a function."""
        out = np.zeros(U.shape[:2])
        for functions, rows, _, given in self._parts(stack, U, received):
            out[rows] = functions.published(*given)
        return out

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Each factor's term; 0 without a function."""
        self.check_owned(stack)
        out = np.zeros(U.shape[:2])
        for functions, rows, _, given in self._parts(stack, U, received):
            out[rows] = functions.value(*given)
        return out

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Each factor's objective, and its gradient."""
        self.check_owned(stack)
        out, slopes = np.zeros(U.shape[:2]), np.zeros(U.shape)
        for functions, rows, own, given in self._parts(stack, U, received):
            out[rows], slope = functions.value_and_gradient(*given)
            slopes[rows] = self._slopes(own, given[0], slope)
        return out, slopes

    def _parts(
        self, stack: FactorStack, U: Points, received: Received
    ) -> Iterator[tuple[BoxFunctions, list[int], FactorStack, tuple[FactorStack, Points, Received]]]:
        """Functions of some rows of a stack, these rows, their part of the stack, and the functions' own arguments."""
        for functions in self.others:
            place, columns, has = functions.graph.place_of, functions.graph.columns, _factors_of(functions)
            known = ((len(columns[place[f]]), row) for row, f in enumerate(stack.factors) if f in has)
            for rows in map(list, grouped(known).values()):  # rows that read equally many coordinates
                factors = tuple(stack.factors[row] for row in rows)
                own = FactorStack(factors, stack.columns[rows])
                inner = FactorStack(factors, np.array([columns[place[f]] for f in factors]))
                given = inner, self._read(own, inner, U[rows]), tuple(phase[rows] for phase in received)
                yield functions, rows, own, given

    def _read(self, own: FactorStack, inner: FactorStack, U: Points) -> Points:
        return U

    def _slopes(self, own: FactorStack, inner: FactorStack, slope: Points) -> Points:
        return slope


def _factors_of(functions: BoxFunctions) -> Set[str]:
    return functions.graph.place_of.keys() if functions.owned is None else functions.owned


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPoint(ComposedFunctions):
    """Functions that are zero on a box of one point."""

    @classmethod
    def at(cls, graph: FactorGraph, point: Float[np.ndarray, " n"]) -> Self:
        """Functions that allow only this point of the unit cube."""
        return cls(graph, point, point, point[None])

    def starting_from(self, best: Joint, columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]) -> Self:
        """Functions that allow only the best received point."""
        point = self.low.copy()
        point[columns] = best[0, columns]
        return self.at(self.graph, point)


@dataclass(frozen=True, eq=False, kw_only=True)
class MixedFunctions(ComposedFunctions):
    """Functions of typed variables, made of functions over the coordinates of models (``coding``), and constant in each
    cell of a grid. A box around an incumbent limits only numbers: choices have their whole axis.
    """

    coding: Coding

    @classmethod
    def around(cls, inner: BoxFunctions, coding: Coding) -> "MixedFunctions":
        """Functions over the variables whose coordinates the given functions read."""
        low, high = coding.box_outside(inner.low, inner.high)
        graph, starts = coding.over(inner.graph), coding.outside(inner.starts)
        levels = {coding.graph.variables[column]: places for column, places in coding.domain.levels.items()}
        return cls.made_of(inner, graph=graph, low=low, high=high, starts=starts, levels=levels, coding=coding)

    def _read(self, own: FactorStack, inner: FactorStack, U: Points) -> Points:
        return self.coding.read(own, inner, U)

    def _slopes(self, own: FactorStack, inner: FactorStack, slope: Points) -> Points:
        return self.coding.slopes(own, inner, slope)


_VARIANCE_FLOOR = 1e-12  # share of a factor's prior variance, added before a root, which has no slope at 0


Box = tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]  # lower and upper corner


def on_box(belief: AdditiveGP, box: Box | None = None) -> dict[str, Any]:
    """Fields of functions of a belief on a box (None: the unit cube), which start from the best evaluated points."""
    low, high = box or (np.zeros(belief.domain.n_dims), np.ones(belief.domain.n_dims))
    return {"graph": belief.graph, "low": low, "high": high, "starts": starting_points(belief, low, high)}


@dataclass(frozen=True, eq=False, kw_only=True)
class BeliefFunctions(BoxFunctions):
    """Functions of each factor's mean and standard deviation in a belief; a subclass defines ``merit``.

    1e-12 of the factor's prior variance is added to variances, because their root has no derivative at zero.

    Args:
        belief: Belief whose graph is ``graph``.

    Example:
        >>> from swarmbo.acquisition.confidence_bounds import ConfidenceBounds  # a subclass
        >>> from swarmbo.graph import FactorGraph
        >>> belief = AdditiveGP(FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 10.0)})
        >>> bounds = ConfidenceBounds.on_cube(belief.update([[2.0], [5.0]], [0.0, 3.0]), sqrt_beta={"f": 2.0})
        >>> bounds.starts[0].tolist()  # the better point, in the unit cube
        [0.5]
    """

    belief: AdditiveGP

    @classmethod
    def on_cube(cls, belief: AdditiveGP, box: Box | None = None, **more: Any) -> Self:
        """Functions on the unit cube, or on a box in it, starting from the best evaluated points."""
        return cls(**on_box(belief, box), belief=belief, **more)

    def merit(self, stack: FactorStack, mean: Values, std: Values) -> tuple[Values, Any, Any]:
        """Value (g, m) of means and standard deviations (g, m), and its derivatives with respect to both."""
        raise NotImplementedError(f"{type(self).__name__} lacks a merit")

    def marginals(self, stack: FactorStack, U: Points, *, gradient: bool = False) -> Marginals:
        """Means and variances (g, m) of factors' terms, for ``merit``, at points (g, m, a) of the unit cube."""
        return self.belief.local(stack, U, gradient=gradient)

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Each factor's merit, in the unit of the belief."""
        self.check_owned(stack)
        return self._terms(stack, self.marginals(stack, U), received)[0]

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Each factor's merit and its gradient."""
        self.check_owned(stack)
        marginals = self.marginals(stack, U, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        value, by_mean, by_var = self._terms(stack, marginals, received, climbs=True)
        return value, by_mean[..., None] * marginals.dmean + by_var[..., None] * marginals.dvar

    def _terms(
        self, stack: FactorStack, marginals: Marginals, received: Received, *, climbs: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Terms of the sum, or objectives if ``climbs``, and derivatives in mean and variance. Here: the merit."""
        std = np.sqrt(marginals.var + self.variance_floor(stack))
        told: Any = self.merit(stack, marginals.mean, std)  # it may be a user's own
        is_triple = isinstance(told, tuple | list) and len(told) == 3 and np.shape(told[0]) == std.shape
        if not is_triple or any(np.isnan(part).any() for part in told):
            wanted = f"(value, by_mean, by_std), numbers, with a value of the shape {std.shape}"
            raise invalid_result(told, wanted, self, "merit")
        value, by_mean, by_std = told
        # d std / d var = 1 / (2 std)
        return value, np.asarray(by_mean), 0.5 * by_std / std

    def variance_floor(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        """Number added to each factor's variance before its root is taken, in the square of the outcome's unit."""
        h, places = self.belief.hyperparameters, map(self.graph.place_of.__getitem__, stack.factors)
        return np.array([_VARIANCE_FLOOR * (h.outputscales[i] * h.scales[i] ** 2) for i in places])[:, None]


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastFunctions(BeliefFunctions):
    """Functions of the difference f_i(u) - f_i(reference), from the posterior of the difference: the offset between
    factors, which totals do not determine, cancels. The floor under the root keeps values finite at the reference.
    """

    is_over_beaten: ClassVar[bool] = False  # True: the reference may be a pending point
    reference: Float[np.ndarray, " n"]  # the incumbent (n,), a joint point of the unit cube

    def marginals(self, stack: FactorStack, U: Points, *, gradient: bool = False) -> Marginals:
        """Means and variances of the differences."""
        return self.belief.local_contrast(stack, U, self.reference, gradient=gradient)

    def starting_from(self, best: Joint, columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]) -> Self:
        """Functions relative to the best evaluated point, or the point to beat; see ``BoxFunctions.starting_from``."""
        reference = self.reference.copy()
        reference[columns] = (beaten if self.is_over_beaten else best[0])[columns]
        return replace(super().starting_from(best, columns, beaten), reference=reference)

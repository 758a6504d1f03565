"""Bases of the local functions of acquisitions: terms of a sum over a box of the unit cube, one per factor."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.stack import Marginals
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.errors import OwnershipError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.problem.coding import Coding

Received = Sequence[Float[np.ndarray, "g m"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class BoxFunctions(ABC):
    """Functions of factors on a box, to maximise their sum; coordinates are those of the unit cube.

    A factor's results are bit-identical whatever other factors are in the stack. The methods are those of
    ``swarmbo.coordination.LocalFunctions``.

    Args:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Good starting points (k, n), best first; k may be 0.
        owned: Factors that may be evaluated; None allows all.
        levels: For variables on a grid, coordinates of their values in the unit cube; functions are constant around
            each.
    """

    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "k n"]
    owned: frozenset[str] | None = None
    levels: Mapping[str, Float[np.ndarray, " k"]] = field(default_factory=dict[str, np.ndarray])

    @property
    def n_exchanges(self) -> int:
        """Number of phases in which neighbouring factors exchange numbers."""
        return 0

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Numbers that each factor sends its neighbours in phase ``len(received)``; by default nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no phases of exchange")

    @abstractmethod
    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Term of each factor in the sum, given all numbers that its neighbours published."""

    @abstractmethod
    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Objective of each factor, and its gradient, for fixed received numbers."""

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> Self:
        """Make the same functions with received starts, for an agent that knows outcomes of some factors only.

        Args:
            best: Received points in the unit cube, best first, as many as there are starts.
            columns: Indices of the variables for which received points replace the agent's own starts.
            beaten: ``swarmbo.belief.model.incumbents.to_beat`` with all outcomes known.
        """
        starts = self.starts.copy()
        starts[:, columns] = np.clip(best, self.low, self.high)[:, columns]
        return replace(self, starts=starts)

    def of(self, factors: Iterable[str]) -> Self:
        """Make the same functions for an owner of some factors."""
        return replace(self, owned=frozenset(factors))

    def check_owned(self, stack: FactorStack) -> None:
        """Refuse factors of other owners."""
        if self.owned is not None and (foreign := [factor for factor in stack.factors if factor not in self.owned]):
            raise OwnershipError(
                f"asked for factor {foreign[0]!r}; wanted one of {sorted(self.owned)}, which are the owner's"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPoint(BoxFunctions):
    """Functions that are zero on a box of one point."""

    @classmethod
    def at(cls, graph: FactorGraph, point: Float[np.ndarray, " n"]) -> "FixedPoint":
        """Agreement of all factors on this point of the unit cube."""
        return cls(graph=graph, low=point, high=point, starts=point[None])

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> "FixedPoint":
        """The best received point."""
        point = self.low.copy()
        point[columns] = best[0, columns]
        return FixedPoint.at(self.graph, point)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Zero."""
        return np.zeros(U.shape[:2])

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Zeros."""
        return np.zeros(U.shape[:2]), np.zeros_like(U)


@dataclass(frozen=True, eq=False, kw_only=True)
class InnerFunctions(BoxFunctions):
    """Functions made of others, ``inner``, for stacks of equal factors; by default over the same coordinates."""

    inner: BoxFunctions

    @classmethod
    def _made(cls, inner: BoxFunctions, **own: Any) -> Self:
        """Over the box of the inner functions, unless fields of its ``own`` differ."""
        names = ("graph", "low", "high", "starts", "owned", "levels")
        return cls(**({name: getattr(inner, name) for name in names} | own), inner=inner)

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of the inner functions."""
        return self.inner.n_exchanges

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Numbers that the inner functions publish; 0 of factors without one."""
        out = np.zeros(U.shape[:2])
        for rows, own, inner in self._parts(stack):
            told = tuple(phase[rows] for phase in received)
            out[rows] = self.inner.published(inner, self._read(own, inner, U[rows]), told)
        return out

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's term; 0 without an inner function."""
        out = np.zeros(U.shape[:2])
        for rows, own, inner in self._parts(stack):
            told = tuple(phase[rows] for phase in received)
            out[rows] = self.inner.value(inner, self._read(own, inner, U[rows]), told)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's objective, and its gradient."""
        out, slopes = np.zeros(U.shape[:2]), np.zeros(U.shape)
        for rows, own, inner in self._parts(stack):
            told = tuple(phase[rows] for phase in received)
            out[rows], slope = self.inner.value_and_gradient(inner, self._read(own, inner, U[rows]), told)
            slopes[rows] = self._slopes(own, inner, slope)
        return out, slopes

    @abstractmethod
    def _parts(self, stack: FactorStack) -> list[tuple[Any, FactorStack, FactorStack]]:
        """Rows of a stack that have an inner function, with their own stack and that of the inner functions."""

    def _read(self, own: FactorStack, inner: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m b"]:
        return U

    def _slopes(
        self, own: FactorStack, inner: FactorStack, slope: Float[np.ndarray, "g m b"]
    ) -> Float[np.ndarray, "g m a"]:
        return slope


@dataclass(frozen=True, eq=False, kw_only=True)
class MixedFunctions(InnerFunctions):
    """Functions of variables with types, of functions over the coordinates of models (``coding``).

    They are constant in a cell of a grid, and have no slope along it. A box around an incumbent limits numbers only:
    ``low`` and ``high`` of choices are the whole axis.
    """

    coding: Coding

    @classmethod
    def around(cls, inner: BoxFunctions, coding: Coding) -> "MixedFunctions":
        """Functions over the variables that the given ones read."""
        low, high = (coding.bounds(end) for end in (inner.low, inner.high))
        return cls._made(
            inner,
            graph=coding.over(inner.graph),
            low=np.where(coding.is_choice, 0.0, low),
            high=np.where(coding.is_choice, 1.0, high),
            starts=coding.outside(inner.starts),
            levels={coding.graph.variables[column]: places for column, places in coding.domain.levels.items()},
            coding=coding,
        )

    def of(self, factors: Iterable[str]) -> "MixedFunctions":
        """The same functions of some factors only."""
        own = frozenset(factors)
        return replace(self, owned=own, inner=self.inner.of(own))

    def _parts(self, stack: FactorStack) -> list[tuple[list[int], FactorStack, FactorStack]]:
        row_of = {factor: row for row, factor in enumerate(stack.factors)}
        out: list[tuple[list[int], FactorStack, FactorStack]] = []
        for inner in stacks_of(self.inner.graph, row_of):  # factors that read equally many coordinates
            rows = [row_of[factor] for factor in inner.factors]
            out.append((rows, FactorStack(inner.factors, stack.columns[rows]), inner))
        return out

    def _read(self, own: FactorStack, inner: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m b"]:
        return self.coding.read(own, inner, U)

    def _slopes(
        self, own: FactorStack, inner: FactorStack, slope: Float[np.ndarray, "g m b"]
    ) -> Float[np.ndarray, "g m a"]:
        return self.coding.slopes(own, inner, slope)


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedFunctions(BoxFunctions):
    """Several functions, each of factors that no other has, over all their scopes."""

    joined: Sequence[BoxFunctions]

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's function."""
        self.check_owned(stack)
        out = np.zeros(U.shape[:2])
        for functions, rows, own in self._parts(stack):
            out[rows] = functions.value(own, U[rows], received)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's function and its gradient."""
        self.check_owned(stack)
        out, slopes = np.zeros(U.shape[:2]), np.zeros(U.shape)
        for functions, rows, own in self._parts(stack):
            out[rows], slopes[rows] = functions.value_and_gradient(own, U[rows], received)
        return out, slopes

    def _parts(self, stack: FactorStack) -> list[tuple[BoxFunctions, list[int], FactorStack]]:
        """Rows of a stack of all functions that have some of its factors, with their own stack in that order."""
        out: list[tuple[BoxFunctions, list[int], FactorStack]] = []
        for functions in self.joined:
            known = functions.graph.place_of
            row_of = {factor: row for row, factor in enumerate(stack.factors) if factor in known}
            if row_of:
                (own,) = stacks_of(functions.graph, row_of)  # all of one size
                out.append((functions, [row_of[factor] for factor in own.factors], own))
        return out


_VARIANCE_FLOOR = 1e-12  # of a factor's prior variance, added under roots, which have no slope at 0


def on_cube(belief: AdditiveGP) -> dict[str, Any]:
    """Fields of functions of a belief on the whole unit cube, which start from the best evaluated points."""
    low, high = np.zeros(belief.domain.n_dims), np.ones(belief.domain.n_dims)
    return {"graph": belief.graph, "low": low, "high": high, "starts": starting_points(belief, low, high)}


@dataclass(frozen=True, eq=False, kw_only=True)
class BeliefFunctions(BoxFunctions):
    """Functions of each factor's mean and standard deviation by a belief; a subclass defines ``merit``.

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
    def on_cube(cls, belief: AdditiveGP, **more: Any) -> Self:
        """Make functions on the whole unit cube that start from the best evaluated points."""
        return cls(**on_cube(belief), belief=belief, **more)

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Value of means and standard deviations, and the derivatives by the mean and by the standard deviation."""
        raise NotImplementedError(f"{type(self).__name__} lacks a merit")

    def marginals(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Marginals:
        """Means and variances of the factors' terms, to which ``merit`` is applied."""
        return self.belief.local(stack, U, gradient=gradient)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Merit of each factor, in the unit of the outcomes."""
        self.check_owned(stack)
        return self._merit_of(stack, self.marginals(stack, U))[0]

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Merit of each factor, and its gradient."""
        self.check_owned(stack)
        marginals = self.marginals(stack, U, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        value, by_mean, by_var = self._merit_of(stack, marginals)
        return value, by_mean[..., None] * marginals.dmean + by_var[..., None] * marginals.dvar

    def _merit_of(self, stack: FactorStack, marginals: Marginals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Merit, and its derivatives by mean and variance."""
        std = np.sqrt(marginals.var + self.variance_floor(stack))
        value, by_mean, by_std = self.merit(stack, marginals.mean, std)
        # d std / d var = 1 / (2 std)
        return value, np.asarray(by_mean), 0.5 * by_std / std

    def variance_floor(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        """Number added to each factor's variance before its root is taken, in the square of the outcome's unit."""
        return np.array([self._variance_floors[factor] for factor in stack.factors])[:, None]

    @cached_property
    def _variance_floors(self) -> dict[str, float]:
        h = self.belief.hyperparameters
        priors = [output * scale**2 for output, scale in zip(h.outputscales, h.scales, strict=True)]
        return {factor: _VARIANCE_FLOOR * prior for factor, prior in zip(self.graph.factors, priors, strict=True)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastFunctions(BeliefFunctions):
    """Functions of the difference f_i(u) - f_i(reference), by its own posterior.

    The offset between factors is unknown from totals; it inflates the variance of f_i and cancels in the difference.
    The floor under the root keeps values finite at the reference itself, where the difference is zero.

    Args:
        reference: The incumbent (n,), a joint point of the unit cube.
    """

    reference: Float[np.ndarray, " n"]

    def marginals(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Marginals:
        """Means and variances of the differences."""
        return self.belief.local_contrast(stack, U, self.reference, gradient=gradient)

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> Self:
        """The same compared with the best evaluated point; see ``BoxFunctions.starting_from``."""
        return super().starting_from(best, columns, beaten)._over(best[0], columns)

    def _over(self, point: Float[np.ndarray, " n"], columns: Int[np.ndarray, " a"]) -> Self:
        """The same compared with a point, in some variables."""
        reference = self.reference.copy()
        reference[columns] = point[columns]
        return replace(self, reference=reference)

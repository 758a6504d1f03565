"""What each part of a factor is worth where the factor is a sum over its variables."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.graph import FactorStack, stacks_of


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitImprovements(BoxFunctions):
    """Log expected improvements of factors, and of parts of those that are split.

    Args:
        whole: Of the factors as they are, those that are split included.
        parts: Of the split ones' parts, by factor.
    """

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
        """Which functions know which factors of a stack, as a stack of their own graph, and its rows here."""
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

"""What every agent knows of max-sum with refinement before it starts, and the traffic that follows from it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.ledger import Ledger
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_solver import MaxSum
from swarmbo.coordination.messages import Consensus, Published, Report, Verdict
from swarmbo.coordination.refinement import Resolution, coarse_values, window_values
from swarmbo.records import Traffic


@dataclass(frozen=True)
class Zoom:
    """How far a part has come.

    Args:
        depth: How often its lattice was made finer; 0 before the first level.
        levels: Levels solved.
        rounds: Rounds of max-sum taken.
    """

    depth: int = 0
    levels: int = 0
    rounds: int = 0

    def after(self, rounds: int, *, finer: bool) -> "Zoom":
        """The state after one more level.

        Args:
            rounds: Of max-sum, on that level.
            finer: Whether the next one has a finer lattice; else its window has moved.
        """
        return replace(self, depth=self.depth + finer, levels=self.levels + 1, rounds=self.rounds + rounds)


@dataclass(frozen=True, eq=False)
class ZoomPlan:
    """The commonly known side of solving one connected part.

    Args:
        coarse: The part with the numbers of values of the first level.
        window: The same with those of all further levels.
        resolution: How fine.
        columns: Places of the part's variables in the whole graph's.
        low: Lower corner (n,) of the whole box.
        high: Upper corner (n,).
        starts: Points (s, n) whose coordinates join the first level; the first one is the first incumbent.
        n_exchanges: Phases in which neighbours tell each other numbers.
        max_sum: What solves a level.
        tolerance: A lattice finer than this share of the sides is fine enough.
        levels: At most.
    """

    coarse: PartPlan
    window: PartPlan
    resolution: Resolution
    columns: Int[np.ndarray, " v"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "s n"]
    n_exchanges: int
    max_sum: MaxSum
    tolerance: float
    levels: int

    def is_fine_enough(self, zoom: Zoom) -> bool:
        """Whether the last lattice on which the part came to rest was as fine as wanted."""
        return zoom.depth > 0 and self._share(zoom.depth - 1) <= self.tolerance

    def goes_on(self, zoom: Zoom) -> bool:
        """Whether there is another level."""
        return not self.is_fine_enough(zoom) and zoom.levels < self.levels

    def part(self, zoom: Zoom) -> PartPlan:
        """The next level's."""
        return self.window if zoom.depth else self.coarse

    def grid(self, zoom: Zoom, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "v values"]:
        """The values of the part's variables on the next level.

        Args:
            zoom: Where the part stands.
            x: The incumbent; entries of variables whose values are not asked for may be anything within the box.
        """
        low, high = self.low[self.columns], self.high[self.columns]
        if not zoom.depth:
            return coarse_values(low, high, self.starts[:, self.columns], self.resolution.coarse)
        spacing = (high - low) * self._share(zoom.depth)
        return window_values(x[self.columns], low, high, spacing, self.resolution.window)

    def on_whole_graph(self, grid: Float[np.ndarray, "v values"]) -> Float[np.ndarray, "n values"]:
        """The part's grid in rows of the whole graph; other variables' rows are 0."""
        out = np.zeros((len(self.low), grid.shape[1]))
        out[self.columns] = grid
        return out

    def _share(self, depth: int) -> float:
        return 1.0 / ((self.resolution.coarse - 1) * self.resolution.refinement**depth)

    @cached_property
    def start_traffic(self) -> Traffic:
        """Of what neighbours tell each other at the first incumbent."""
        ledger = Ledger(self.coarse.routes)
        self._exchange(ledger)
        return ledger.traffic

    def level_traffic(self, zoom: Zoom) -> Traffic:
        """What crosses the links on a level besides max-sum.

        The choice goes to the owners of factors, neighbours tell each other numbers there, values go up a tree and the
        verdict comes down. On the first level the first incumbent's values go up too.
        """
        graph, tree, ledger = self.coarse.graph, self.coarse.tree, Ledger(self.coarse.routes)
        for factor in graph.factors:
            for variable in graph.scope(factor):
                ledger.add(graph.variable_owner(variable), graph.owner(factor), Consensus(factor, variable, b""), 1)
        self._exchange(ledger)
        for agent, parent in tree.parent.items():
            if parent is not None:
                n_values = len(tree.factors[agent]) * (1 if zoom.levels else 2)
                ledger.add(agent, parent, Report(self.coarse.index, agent, b"", 0.0, False), n_values)
                ledger.add(parent, agent, Verdict(self.coarse.index, 0, False))
        return ledger.traffic

    def _exchange(self, ledger: Ledger) -> None:
        graph = self.coarse.graph
        for phase in range(self.n_exchanges):
            for factor in graph.factors:
                for neighbour in graph.neighbours(factor):
                    message = Published(factor, neighbour, b"", phase)
                    ledger.add(graph.owner(factor), graph.owner(neighbour), message, 1)

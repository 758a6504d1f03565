"""What agents on continuous domains send one another, counted without sending it."""

from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.max_sum_plan import spanning_tree
from swarmbo.coordination.messages import Consensus, Copy, Ledger, Published, Ruling, Slope, Tally
from swarmbo.coordination.parts import Parts
from swarmbo.records import Traffic
from swarmbo.transport import Routes


class ContinuousLedger:
    """Traffic of the stages of an agreement, in numbers per message.

    Only variables of more than one factor cross links, and only between different owners. A part whose factors one
    agent owns costs nothing.

    Args:
        functions: Whose exchanges count.
        parts: Of their graph.
        routes: Who reaches whom.
    """

    def __init__(self, functions: LocalFunctions, parts: Parts, routes: Routes) -> None:
        self._n_exchanges = functions.n_exchanges
        self._ledger = Ledger(routes)
        self._parts = [part for part in functions.graph.components if len(part.agents) > 1]
        self._trees = [spanning_tree(part, routes) for part in self._parts]

    @property
    def traffic(self) -> Traffic:
        """All noted so far."""
        return self._ledger.traffic

    def screening(self, n_points: int) -> None:
        """Sums of all factors at random points go up each tree; which are best comes down."""
        self._trees_up_and_down(n_points, n_points, times=1)

    def rounds(self, count: int, n_starts: int) -> None:
        """Rounds of consensus: exchanges, copies to the owners and the consensus back, sums over the tree."""
        self._exchanges(n_starts, count)
        for part in self._parts:
            for factor in part.factors:
                owner = part.owner(factor)
                for variable in part.scope(factor):
                    if len(part.factors_of(variable)) > 1:
                        actor = part.variable_owner(variable)
                        self._ledger.add(owner, actor, Copy(factor, variable, b""), n_starts, times=count)
                        self._ledger.add(actor, owner, Consensus(factor, variable, b""), n_starts, times=count)
        self._trees_up_and_down(3 * n_starts, n_starts + 1, times=count)

    def polishing(self, steps: int, n_points: int) -> None:
        """Slopes to the owners of variables, new values back, sums over the tree."""
        self._exchanges(n_points, steps)
        for part in self._parts:
            for factor in part.factors:
                owner = part.owner(factor)
                for variable in part.scope(factor):
                    actor = part.variable_owner(variable)
                    self._ledger.add(owner, actor, Slope(factor, variable, b""), n_points, times=steps)
                    self._ledger.add(actor, owner, Consensus(factor, variable, b""), n_points, times=steps)
        self._trees_up_and_down(4 * n_points, n_points, times=steps)

    def _exchanges(self, n_numbers: int, times: int) -> None:
        for part in self._parts:
            for factor in part.factors:
                for neighbour in part.neighbours(factor):
                    message = Published(factor, neighbour, b"")
                    sender, recipient = part.owner(factor), part.owner(neighbour)
                    self._ledger.add(sender, recipient, message, n_numbers, times=times * self._n_exchanges)

    def _trees_up_and_down(self, up: int, down: int, times: int) -> None:
        for tree in self._trees:
            for agent, parent in tree.parent.items():
                if parent is not None:
                    self._ledger.add(agent, parent, Tally(agent, b""), up, times=times)
                    self._ledger.add(parent, agent, Ruling(agent, b""), down, times=times)

"""What agents were told since the last decision, as a team notes it: they say it before the next one."""

import msgspec
import numpy as np

from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import PackedOffer
from swarmbo.deciding.own_rows import UNASKED, OwnRows
from swarmbo.deciding.reports import Told, in_order, measurements_of
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
from swarmbo.records import Traffic


class Since(msgspec.Struct, frozen=True):
    """What agents were told since the last decision.

    Args:
        own: Of agents in a field what each was told.
        rounds: The round that news of a query are of.
        learned: What was learned of it: queries, and calls of ``attach`` by their first row.
        lines: Of a function, how many evaluations there may be news of.
        gossip: What agents with beliefs of their own have said of them since.
        offered: What each agent in a field offered before the last decision, if all heard it.
        edges: Who heard whom in the last decision; None: everyone heard everyone.
    """

    own: dict[str, OwnRows] = {}
    rounds: dict[str, int] = {}
    learned: tuple[str | int, ...] = ()
    lines: int = 0
    gossip: Traffic = Traffic()
    offered: dict[str, PackedOffer] = {}
    edges: tuple[tuple[str, str], ...] | None = None

    def of(self, agent: str) -> OwnRows:
        """What one agent was told."""
        return self.own.get(agent, OwnRows())

    def with_news(self, problem: Problem, query_id: str | None, news: News, of_round: int, *, is_all: bool) -> "Since":
        """The same and news of a round in a field.

        Args:
            problem: The field.
            query_id: Which query they are of; None: of what nobody asked for.
            news: What agents measured.
            of_round: The round that they are of.
            is_all: Whether nothing more will come of the query, or of the round.
        """
        key = query_id or UNASKED
        if query_id is None and key in self.rounds:
            key = f"{UNASKED}{len(self.rounds)}"  # another round of which nobody was asked
        rows = {agent: self.of(agent).row(problem, agent, news, has_ended=is_all) for agent in problem.agents}
        told = {agent: self.of(agent).with_told(key, row) for agent, row in rows.items() if row.has_come}
        if not told:
            return self
        return msgspec.structs.replace(self, own=self.own | told, rounds={**self.rounds, key: of_round})

    def with_survey(self, problem: Problem, data: Dataset, present: int, *, fades: bool) -> "Since":
        """The same and what was attached in a field.

        Args:
            problem: The field.
            data: The measurements.
            present: The round, if nobody says.
            fades: Whether rounds are of account.
        """
        own = {agent: self.of(agent).surveyed(problem, agent, data, present, fades=fades) for agent in problem.agents}
        return msgspec.structs.replace(self, own=own)

    def new(self, problem: Problem) -> list[tuple[str | int, list[Told]]]:
        """What was not learned yet, in the order in which all learn it.

        Args:
            problem: The field.
        """
        told = [one for agent in problem.agents for one in measurements_of(problem, agent, self.of(agent))]
        groups = in_order(told, self.of(problem.agents[0]).attached)
        return [(of, group) for of, group in groups if of not in self.learned]

    def after(self, log: Logbook) -> "Since":
        """Nothing, once it was said and something was decided: but what is pending now may come.

        Args:
            log: After the decision.
        """
        return Since(lines=len(log.open), offered=self.offered, edges=self.edges)

    def to_array(self) -> np.ndarray:
        """Its bytes."""
        return np.frombuffer(msgspec.msgpack.encode(self), dtype=np.uint8).copy()

    @classmethod
    def from_array(cls, content: np.ndarray) -> "Since":
        """The one that was written down."""
        return msgspec.msgpack.decode(content.tobytes(), type=Since)

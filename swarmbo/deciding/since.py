"""Agents' unreported data since the last decision, as a team tracks them."""

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
    """Agents' unreported data since the last decision.

    Args:
        rounds: Round of the news of each query.
        learned: Data that are learned: queries, and calls of ``attach`` by their first row.
        lines: Of a function, number of evaluations that may have news.
        gossip: Traffic of local beliefs since then.
        offered: In a field, each agent's offer before the last decision, if all received it.
        edges: Links of the last decision; None: every agent reached every other.
    """

    own: dict[str, OwnRows] = {}
    rounds: dict[str, int] = {}
    learned: tuple[str | int, ...] = ()
    lines: int = 0
    gossip: Traffic = Traffic()
    offered: dict[str, PackedOffer] = {}
    edges: tuple[tuple[str, str], ...] | None = None

    def of(self, agent: str) -> OwnRows:
        """Data of one agent."""
        return self.own.get(agent, OwnRows())

    def with_news(self, problem: Problem, query_id: str | None, news: News, of_round: int, *, is_all: bool) -> "Since":
        """Add news of a round in a field; ``is_all`` is True if the query or the round gets no more outcomes."""
        key = query_id or UNASKED
        if query_id is None and key in self.rounds:
            key = f"{UNASKED}{len(self.rounds)}"  # another round without a request
        rows = {agent: self.of(agent).row(problem, agent, news, has_ended=is_all) for agent in problem.agents}
        told = {agent: self.of(agent).with_told(key, row) for agent, row in rows.items() if row.has_come}
        if not told:
            return self
        return msgspec.structs.replace(self, own=self.own | told, rounds={**self.rounds, key: of_round})

    def with_survey(self, problem: Problem, data: Dataset, present: int, *, fades: bool) -> "Since":
        """Add attached data in a field; ``present`` is the default round, ``fades`` True if rounds matter."""
        own = {agent: self.of(agent).surveyed(problem, agent, data, present, fades=fades) for agent in problem.agents}
        return msgspec.structs.replace(self, own=own)

    def new(self, problem: Problem) -> list[tuple[str | int, list[Told]]]:
        """Data that are not learned yet, in the order in which all agents learn them."""
        told = [one for agent in problem.agents for one in measurements_of(problem, agent, self.of(agent))]
        groups = in_order(told, self.of(problem.agents[0]).attached)
        return [(of, group) for of, group in groups if of not in self.learned]

    def after(self, log: Logbook) -> "Since":
        """State after a report and a decision: only pending queries may have news."""
        return Since(lines=len(log.open), offered=self.offered, edges=self.edges)

    def to_array(self) -> np.ndarray:
        """Encode as bytes."""
        return np.frombuffer(msgspec.msgpack.encode(self), dtype=np.uint8).copy()

    @classmethod
    def from_array(cls, content: np.ndarray) -> "Since":
        """Decode the bytes of ``to_array``."""
        return msgspec.msgpack.decode(content.tobytes(), type=Since)

"""Stages of one agent: the exchange of data, then a decision or a recommendation."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np

from swarmbo.agent import schema
from swarmbo.agent.answers import Answering, Stage, Staged
from swarmbo.belief.fusion.fused import Talk
from swarmbo.belief.fusion.fused_view import Spoken, Unfinished, carried, talk as talking
from swarmbo.coordination import schema as fitting
from swarmbo.coordination.by_messages import Post, Waiting
from swarmbo.coordination.messages import Key, Note
from swarmbo.coordination.requests import ToAll, answered, asked
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer
from swarmbo.deciding.own_rows import Exchange, OwnRows
from swarmbo.deciding.reports import Reports
from swarmbo.spaces import PlaceTable
from swarmbo.transport import Envelope


class Stages(Answering):
    """Stages of one agent; absent agents receive nothing, and relay nothing."""

    @property
    def _absent(self) -> dict[str, OwnRows]:
        return {} if self.participants is None else self.participants.absent(self.setup.problem.agents)

    def reports(
        self, log: Logbook, learner: FieldLearner, own: OwnRows, offer: Offer, known: Mapping[str, PackedOffer]
    ) -> Staged[tuple[Logbook, FieldLearner, dict[str, PackedOffer]]]:
        """Exchange measurements and reachable locations in a field, and merge them into log and learner."""
        keeps, problem, links = not schema.learns_alike(self.setup), self.setup.problem, self.links
        if self._absent:
            links = nx.complete_graph(problem.agents) if links is None else links
            links = nx.restricted_view(links, [name for name in self._absent if name in links], [])
        sites = None if self.sites is None else PlaceTable(self.sites)
        packed = PackedOffer.of(offer, offer.places(problem.box.n_dims), sites)
        reports = Reports(problem, self.name, own, packed, links, keeps, known)
        fits = schema.reports(log, own.attached, self.sites, known)
        heard = yield from self._exchanged("reports", asked(ToAll({self.name: reports.said()}, fits)))
        gone = PackedOffer.of(Offer(takes_part=False), None, None)
        # all participants have the same rows of absent agents, and report for them without a message
        heard |= {name: Reports(problem, name, rows, gone, keeps=keeps).said() for name, rows in self._absent.items()}
        return (yield from answered(reports.merged(log, learner, heard), self._talked))

    def _talked(self, due: Sequence[Talk]) -> Staged[None]:
        for talk in due:
            for view in talk.agents.values():
                view.refused = self.refused
            yield from answered(talking(talk.agents, talk.steps), partial(self._in_step, talk))

    def _in_step(self, talk: Talk, request: Unfinished | Spoken) -> Staged[Any]:
        if isinstance(request, Unfinished):
            unfinished = yield from self._sum("sharing", np.array([[float(request.own)]]), fitting.are_not_negative)
            return bool(unfinished[0, 0])
        arriving = {name: letters[0].payload for name, letters in carried(request.letters, talk.medium).items()}
        names, neighbours = self.setup.problem.agents, talk.agents[self.name].neighbours
        (notes,) = yield Stage("sharing", lambda post: [self._notes(arriving, neighbours, post)])
        inbox = [Envelope(name, self.name, notes[name]) for name in names if notes.get(name)]
        return {self.name: inbox}

    def _notes(self, said: Mapping[str, bytes], neighbours: Sequence[str], post: Post) -> Waiting[dict[str, bytes]]:
        """Exchange a note with every neighbour; an empty note means nothing to send, or a loss."""
        for neighbour in neighbours:
            post(neighbour, Note(self.name, said.get(neighbour, b"")))
        heard: dict[Key, Any] = {}
        if neighbours:
            heard = yield {("note", neighbour): fitting.Wanted(neighbour, lambda _: True) for neighbour in neighbours}
        return {message.agent: message.content for message in heard.values()}

    def news(self, log: Logbook, own: OwnRows) -> Staged[Logbook]:
        """Log of a function with the data of all agents since the last decision."""
        problem, participants = self.setup.problem, self.participants
        exchange = Exchange(self.name, log, own)
        # by common knowledge only: an agent that skipped the exchange for its own data would leave others waiting
        if not (log.open or own.attached):
            return log
        tellers = problem.agents[:1] if participants is None else problem.agents  # another may have got the total
        fits = schema.news(problem, log, len(own.attached), tellers)
        sums = yield from self._sum("news", exchange.numbers(), fits)
        for name, rows in self._absent.items():  # 0 for all others, as for any agent's numbers: the sum stays exact
            sums = sums + Exchange(name, log, rows).numbers()
        return exchange.merged(sums).without(() if participants is None else participants.over)

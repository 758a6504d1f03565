"""Stages of one agent: the exchange of data, then a decision or a recommendation."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np

from swarmbo.agent import schema
from swarmbo.agent.answers import AgentDriver, Stage
from swarmbo.belief.fusion.fused import FusionExchange
from swarmbo.belief.fusion.fused_view import AnyUnfinished, StepMessages, exchange_steps, send_and_deliver
from swarmbo.coordination import schema as fitting
from swarmbo.coordination.by_messages import Post, Program
from swarmbo.coordination.messages import Key, Note
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer
from swarmbo.deciding.own_rows import OutcomeExchange, OwnRows
from swarmbo.deciding.reports import Reports
from swarmbo.spaces import PlaceTable
from swarmbo.steps import Steps, answer_requests
from swarmbo.transport import Envelope


class Stages(AgentDriver):
    """Stages of one agent; absent agents neither receive nor relay messages."""

    @property
    def _absent(self) -> dict[str, OwnRows]:
        return {} if self.participants is None else self.participants.absent(self.setup.problem.agents)

    def exchange_reports(
        self, log: Logbook, learner: FieldLearner, own: OwnRows, offer: Offer, known_offers: Mapping[str, PackedOffer]
    ) -> Steps[tuple[Logbook, FieldLearner, dict[str, PackedOffer]]]:
        """Exchange measurements and reachable locations in a field, and merge them into log and learner."""
        keeps_outcomes, problem, links = not schema.reports_outcomes(self.setup), self.setup.problem, self.links
        if self._absent:
            links = nx.complete_graph(problem.agents) if links is None else links
            links = nx.restricted_view(links, [name for name in self._absent if name in links], [])
        sites = None if self.sites is None else PlaceTable(self.sites)
        places = None if offer.candidates is None else np.array(offer.candidates).reshape(-1, problem.box.n_dims)
        packed = PackedOffer.of(offer, places, sites)
        reports = Reports(problem, self.name, own, packed, links, keeps_outcomes, known_offers)
        fits = schema.reports(log, own.attached, self.sites, known_offers)
        received = yield from self._send_to_all("reports", reports.packed(), fits)
        absent = PackedOffer(None, 0.0, None, takes_part=False)
        # all participants have the same rows of absent agents, and report for them without a message
        for name, rows in self._absent.items():
            received[name] = Reports(problem, name, rows, absent, keeps_outcomes=keeps_outcomes).packed()
        return (yield from answer_requests(reports.merged(log, learner, received), self._fuse))

    def _fuse(self, due: Sequence[FusionExchange]) -> Steps[None]:
        for exchange in due:
            for view in exchange.agents.values():
                view.refused = self.refused
            steps = exchange_steps(exchange.agents, exchange.steps)
            yield from answer_requests(steps, partial(self._answer_fusion, exchange))

    def _answer_fusion(self, exchange: FusionExchange, request: AnyUnfinished | StepMessages) -> Steps[Any]:
        if isinstance(request, AnyUnfinished):
            unfinished = yield from self._sum("sharing", np.array([[float(request.own)]]), fitting.are_not_negative)
            return bool(unfinished[0, 0])
        # the medium loses messages; what it delivers crosses the real links
        inboxes = send_and_deliver(request.envelopes, exchange.medium)
        contents = {name: inbox[0].payload for name, inbox in inboxes.items()}
        neighbours = exchange.agents[self.name].neighbours
        (notes,) = yield Stage("sharing", lambda post: [self._exchange_notes(contents, neighbours, post)])
        inbox = [Envelope(name, self.name, notes[name]) for name in self.setup.problem.agents if notes.get(name)]
        return {self.name: inbox}

    def _exchange_notes(
        self, contents: Mapping[str, bytes], neighbours: Sequence[str], post: Post
    ) -> Program[dict[str, bytes]]:
        """Exchange a note with every neighbour; an empty note means nothing to send, or a loss."""
        for neighbour in neighbours:
            post(neighbour, Note(self.name, contents.get(neighbour, b"")))
        received: dict[Key, Any] = {}
        if neighbours:
            received = yield {("note", name): fitting.Wanted(name, fitting.accept_all) for name in neighbours}
        return {message.agent: message.content for message in received.values()}

    def exchange_outcomes(self, log: Logbook, own: OwnRows) -> Steps[Logbook]:
        """Log of a function with the data of all agents since the last decision."""
        problem, participants = self.setup.problem, self.participants
        exchange = OutcomeExchange(self.name, log, own)
        # decided by common knowledge: if own data counted, one agent might skip what others wait for
        if not (log.open or own.attached):
            return log
        reporters = problem.agents[:1] if participants is None else problem.agents  # another may have got the total
        fits = schema.outcome_sums(problem, log, len(own.attached), reporters)
        sums = yield from self._sum("news", exchange.numbers(), fits)
        for name, rows in self._absent.items():  # 0 for all others, as for any agent's numbers: the sum stays exact
            sums = sums + OutcomeExchange(name, log, rows).numbers()
        return exchange.merged(sums).without(() if participants is None else participants.finished_queries)

"""What one agent does in a decision, stage by stage: it computes from what it knows, then waits for messages."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import EachSays, Heard, InTurn
from swarmbo.agent import schema
from swarmbo.agent.company import Company
from swarmbo.agent.timed import Known, Timed
from swarmbo.belief.fusion.exchange import Spoken, Unfinished, carried, talk as talking
from swarmbo.belief.fusion.fused import FusedBelief, Talk
from swarmbo.belief.model import incumbents
from swarmbo.coordination import schema as fitting
from swarmbo.coordination.agreement import Agreement, BoxOutcome, Solution, TableOutcome, solution_with
from swarmbo.coordination.asynchronous import Punctual
from swarmbo.coordination.asynchronous_box import PunctualInBox
from swarmbo.coordination.box_terms import BoxTerms
from swarmbo.coordination.by_deadline import (
    TimedClimbs,
    TimedTables,
    has_deadline,
    settled,
    terms_of,
    whole_factors,
)
from swarmbo.coordination.claims import Claims
from swarmbo.coordination.drivers.by_messages import ByMessages, Post
from swarmbo.coordination.messages import Key, Message, Note
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import AllReduce, Steps, ToAll, answered, asked
from swarmbo.deciding.choice import Choice
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.joint import Agree, Expect, Gather, Rank, Ranking, Request, Whole, ranked_parts
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.own_rows import Exchange, OwnRows, shares_outcomes
from swarmbo.deciding.places import Choose, Visit, declining
from swarmbo.deciding.reports import Offer, Reports
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.words import all_of, heard as heard_of, said_by
from swarmbo.graph import FactorGraph
from swarmbo.records import Recommendation, SolveReport, Traffic
from swarmbo.routing.auction import Legs
from swarmbo.transport import Envelope, Routes
from swarmbo.worlds import Offers

Out = TypeVar("Out")
_NEAR = 1.0  # of the cube's side: how far outside it a point may be
Learner = FieldLearner | FunctionLearner
Program = Generator[Mapping[Key, fitting.Wanted], dict[Key, Message], Out]


class Stage(NamedTuple):
    """Programs that run side by side, and what they are for; answered by what comes out of them."""

    purpose: str
    programs: Callable[[Post], Iterable[Program[Any]]]


Staged = Generator[Stage | Timed | Known, Any, Out]


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of one agent.

    Args:
        name: Of the agent.
        setup: What everybody knows beforehand.
        routes: Who reaches whom.
        links: Who hears whom; None: everyone hears everyone.
        company: Who takes part; None: all.
        sites: Every place of a field that can be measured at all; None: nobody says.
        refused: Where messages are counted that held what they may not, by sender.
    """

    name: str
    setup: Setup
    routes: Routes
    links: "nx.Graph[str] | None"
    company: Company | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    refused: Counter[str] = field(default_factory=Counter[str])

    @property
    def _members(self) -> tuple[str, ...]:
        return self.setup.problem.agents if self.company is None else self.company.members

    @property
    def _absent(self) -> dict[str, OwnRows]:
        return {} if self.company is None else self.company.absent(self.setup.problem.agents)

    def reports(
        self, log: Logbook, learner: FieldLearner, own: OwnRows, offer: Offer
    ) -> Staged[tuple[Logbook, FieldLearner, Mapping[str, Offer]]]:
        """What all in a field know once each has told all others what it measured, and where it can go.

        Args:
            log: What was known.
            learner: What was made of it.
            own: What this agent was told since the last decision.
            offer: Where this agent can go.
        """
        keeps = isinstance(learner.belief, FusedBelief)
        problem = self.setup.problem
        reports = Reports(problem, self.name, own, offer, self.links, keeps, self.sites)
        fits = schema.reports(problem, log, own.attached, self.sites)
        heard = yield from self._said("reports", asked(ToAll({self.name: reports.said()}, fits)))
        gone = Offer(takes_part=False)
        heard |= {name: Reports(problem, name, rows, gone).said() for name, rows in self._absent.items()}
        return (yield from answered(reports.merged(log, learner, heard), self._talked))

    def _visited(self, request: Visit) -> Staged[Decision]:
        """What it bids for by messages, as the pilot of its own route; then everybody learns where all go."""
        plan, pilots = request.planned.plan, request.planned.pilots
        own = {self.name: pilots[self.name]} if self.name in pilots else {}
        legs: list[Legs] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post) if own else [])
        place = next((leg.points[self.name].tolist() for leg in legs if self.name in leg.points), None)
        word = {self.name: msgspec.msgpack.encode(place)}
        words = yield from self._said("choices", asked(ToAll(word, schema.places(self.setup.problem))))
        places = {name: msgspec.msgpack.decode(word) for name, word in words.items()}
        points = {name: np.array(place) for name, place in places.items() if place is not None}
        return Decision(points, SolveReport("sequential", rounds=max((leg.rounds for leg in legs), default=0)))

    def _talked(self, belief: FusedBelief) -> Staged[None]:
        """What it has to say of its belief, said to those that it hears, and what they say heard."""
        due, belief.due = belief.due, ()
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

    def _notes(self, said: Mapping[str, bytes], neighbours: Sequence[str], post: Post) -> Program[dict[str, bytes]]:
        """A note to everybody that it hears, and one from each: who has nothing to say, or loses it, says that."""
        for neighbour in neighbours:
            post(neighbour, Note(self.name, said.get(neighbour, b"")))
        heard: dict[Key, Any] = {}
        if neighbours:
            heard = yield {("note", neighbour): fitting.Wanted(neighbour, lambda _: True) for neighbour in neighbours}
        return {message.agent: message.content for message in heard.values()}

    def _said(self, purpose: str, steps: Steps[dict[str, bytes]]) -> Staged[dict[str, bytes]]:
        """What is said to everybody, by this agent and by others."""
        (said,) = yield Stage(purpose, lambda post: [ByMessages(self._everybody, self.name, post).program(steps)])
        return said

    def news(self, log: Logbook, own: OwnRows) -> Staged[Logbook]:
        """What all who set variables of a function were told since the last decision, in one logbook.

        Args:
            log: What was known then.
            own: What this agent was told since.
        """
        exchange = Exchange(self.setup.problem, self.name, log, own)
        if not exchange.is_due:
            return log
        problem = self.setup.problem
        tellers = problem.agents[:1] if self.company is None else problem.agents  # by then it was another that was told
        fits = schema.news(problem, log, len(own.attached), tellers)
        sums = yield from self._sum("news", exchange.numbers(), fits)
        for name, rows in self._absent.items():  # 0 of all others, as with anybody's numbers: the sum stays exact
            sums = sums + Exchange(self.setup.problem, name, log, rows).numbers()
        return exchange.merged(sums).without(() if self.company is None else self.company.over)

    def decided(self, log: Logbook, learner: Learner, offers: Offers) -> Staged[tuple[Learner, Choice]]:
        """The next joint point, as it is decided by anybody; what others know is asked by message.

        Args:
            log: What is known.
            learner: What was made of it before.
            offers: What there is to choose from.
        """
        return answered(learner.steps(log, offers), self._answer)

    def recommended(
        self, log: Logbook, learner: Learner, sites: Float[np.ndarray, "k d"] | None
    ) -> Staged[tuple[Learner, Recommendation | None]]:
        """What is worth most in expectation.

        Args:
            log: What is known.
            learner: What was made of it before.
            sites: In a field, every place that can be measured at all; None: anything in the box.
        """
        return answered(learner.recommend(log, sites), self._answer)

    def _answer(self, request: Request | Choose | Visit | EachSays | InTurn) -> Staged[Any]:
        match request:
            case Rank():
                return (yield from self._ranked(request))
            case Gather():
                return (yield from self._gathered(request))
            case Whole():
                return (yield from self._best(request))
            case Expect():
                return (yield from self._expected(request))
            case Agree():
                return (yield from self._agreed(request))
            case Choose():
                return (yield from self._chosen(request))
            case EachSays() | InTurn():
                said = yield from self._said(request.purpose, said_by(request, (self.name,)))
                return Heard(heard_of(request, said))
            case Visit():
                return (yield from self._visited(request))

    @property
    def _knows_all(self) -> bool:
        return shares_outcomes(self.setup.problem)

    def _ranked(self, request: Rank) -> Staged[Ranking | None]:
        """The best of what was evaluated, by sums over the parts that it takes part in."""
        belief, means = request
        U, shared = incumbents.evaluated(belief), ranked_parts(belief.graph, self.setup.coordination)
        mine = [(i, part) for i, part in shared if self.name in part.agents]
        if self._knows_all or not mine or not len(U):
            return None

        def ranked(i: int, part: FactorGraph, post: Post) -> Program[Any]:
            own = part.factors_owned_by(self.name)
            terms = np.zeros((0, len(U) + len(belief.pending)))
            if own:
                terms = np.hstack(
                    [incumbents.means_of(belief, own, means), incumbents.means_of(belief, own, pending=True)]
                )
            everybody = Part(part, i, self.routes, present=self._members)
            sums = yield from self._reduced(everybody, terms[:, None, :], post, fitting.is_finite)
            told, ahead = sums[0, : len(U)], sums[0, len(U) :]
            return i, incumbents.as_seen(belief, part, told), incumbents.pending_means(belief, part, ahead)

        found = sorted((yield Stage("ranking", lambda post: [ranked(i, part, post) for i, part in mine])))
        seen = [worth for _, worth, _ in found]
        points = incumbents.composed(seen, U, incumbents.N_STARTS)
        beaten = points[0].copy()
        for _, (columns, told), ahead in found if len(belief.pending) else ():
            beaten[columns] = incumbents.surpassed(belief, columns, beaten, float(told.max()), ahead)
        return Ranking(points, np.concatenate([columns for columns, _ in seen]), beaten)

    def _gathered(self, request: Gather) -> Staged[Mapping[str, float]]:
        graph, numbers = request
        if self._knows_all:
            return numbers
        own = np.array([numbers[factor] if graph.owner(factor) == self.name else 0.0 for factor in graph.factors])
        sums = (yield from self._sum("spread", own[None], fitting.each_own(graph.factor_owners, 0.0)))[0]
        if self._absent:  # nobody knows the number of a factor whose owner is absent: let it be as others are
            known = np.array([graph.owner(factor) in self._members for factor in graph.factors])
            sums = np.where(known, sums, sums[known].mean() if known.any() else 1.0)
        return dict(zip(graph.factors, sums.tolist(), strict=True))

    def _agreed(self, request: Agree) -> Staged[Agreement]:
        """What it agrees on with others, then made known to all: every agent's own variables are its word."""
        functions, graph, timed = request.functions, request.functions.graph, self.setup.coordination
        if isinstance(timed, TimedClimbs) and has_deadline(timed):
            return (yield from self._agreed_in_time(timed, request))
        plan = self.setup.coordination.plan(functions, Routes(graph.agents, request.links), request.seed)
        own = functions.of(graph.factors_owned_by(self.name))
        outcomes: list[BoxOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        u = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        point = np.array([u.get(variable, 0.0) for variable in self.setup.problem.graph.variables])
        report = SolveReport(
            status="converged" if all(outcome.has_converged for outcome in outcomes) else "max_rounds",
            rounds=max((outcome.rounds for outcome in outcomes), default=0),
        )
        return Agreement((yield from self._composed("point", point)), 0.0, report)

    def _agreed_in_time(self, timed: TimedClimbs, request: Agree) -> Staged[Agreement]:
        """The same by a deadline."""
        functions, graph, variables = request.functions, request.functions.graph, self.setup.problem.graph.variables
        word: Mapping[str, float] = {}
        if self.name in graph.agents:
            terms = BoxTerms.of(timed, functions, request.seed, shares=request.shares)
            stand = dict(zip(graph.variables, np.clip(terms.standing, terms.low, terms.high).tolist(), strict=True))
            own = yield Timed(
                timed.deadline,
                Routes([agent for agent in graph.agents if agent in self._members], request.links),
                lambda decision: PunctualInBox.of(self.name, terms, functions, decision),
                again=request.again,
            )
            word = stand | own
        point = np.array([word.get(variable, 0.0) for variable in variables])
        point = yield from self._composed("point", point, who=graph.agents)
        return Agreement(point, 0.0, SolveReport("deadline", timed.deadline))

    def _best(self, request: Whole) -> Staged[Float[np.ndarray, " n"]]:
        """A joint point, of which the owner of each variable's first factor says where that is."""
        graph = self.setup.problem.graph
        owners = [graph.owner(graph.factors_of(variable)[0]) for variable in graph.variables]
        return (yield from self._composed("best", request.point, owners))

    def _expected(self, request: Expect) -> Staged[tuple[float, float]]:
        """What the sum is expected to be, as the owners of factors have it."""
        (model, point), graph = request, self.setup.problem.graph
        if self._knows_all:
            mean, std = model.posterior(point[None])
            return float(mean[0]), float(std[0])
        numbers = np.zeros((2, len(graph.factors)))
        for place, factor in enumerate(graph.factors):
            if graph.owner(factor) == self.name:  # an only factor, which may be modelled in parts, is the sum
                is_sum = len(graph.factors) == 1
                found = model.posterior(point[None]) if is_sum else model.factor_posterior(factor, point[None])
                numbers[:, place] = [float(array[0]) for array in found]
        means, stds = yield from self._sum(
            "expected", numbers, fitting.each_own(graph.factor_owners, fitting.LOWEST, fitting.HIGHEST)
        )
        return float(means.sum()), float(np.sqrt((stds**2).sum()))

    def _chosen(self, request: Choose) -> Staged[Solution]:
        """What it agrees on with others, by its own tables; then everybody learns what all chose, and what it is worth.

        Of tables it makes its own only, and of places, which it has all, no table is needed.
        """
        problem, graph, agents = request.problem, request.problem.graph, self.setup.problem.agents
        timed: object = self.setup.coordination
        if isinstance(timed, TimedTables) and has_deadline(timed):
            return (yield from self._chosen_in_time(timed, request))
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        plan = self.setup.coordination.plan(graph, sizes, Routes(graph.agents, request.links), request.seed)
        own = {factor: problem.tables[factor] for factor in graph.factors if graph.owner(factor) == self.name}
        outcomes: list[TableOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        mine = {variable: index for outcome in outcomes for variable, index in outcome.assignment.items()}
        told = np.array([[float(mine.get(agent, 0)) for agent in agents]])
        indices = yield from self._sum("choices", told, schema.indices(agents, sizes, 0))
        assignment = {agent: int(index) for agent, index in zip(agents, indices[0], strict=True) if agent in sizes}
        worth = np.zeros(len(graph.factors))
        for place, factor in enumerate(graph.factors):
            if factor in own:
                worth[place] = own[factor][tuple(assignment[x] for x in graph.scope(factor))]
        values = yield from self._sum("choices", worth[None], fitting.each_own(graph.factor_owners))
        return solution_with(graph, assignment, values[0], outcomes, Traffic())

    def _chosen_in_time(self, timed: TimedTables, request: Choose) -> Staged[Solution]:
        """The same by a deadline: before it everybody says what its tables forbid, after it what was chosen.

        Where it goes is known at the deadline, whoever else is heard of.
        """
        problem, graph, agents = request.problem, request.problem.graph, self.setup.problem.agents
        own = {f: problem.tables[f] for f in graph.factors if graph.owner(f) == self.name}
        packed = Claims.packed(graph, problem.tables, self.name)
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        said = yield from self._said("claims", asked(ToAll({self.name: packed}, schema.forbidding(graph, sizes))))
        claims = Claims.unpacked(graph, said)
        index = None
        if self.name in graph.agents:
            terms = terms_of(timed, sizes, claims, declining(problem), request.seed)
            links = Routes(graph.agents, request.links)
            word = yield Timed(
                timed.deadline, links, lambda decision: Punctual(self.name, terms, own, decision), again=False
            )
            index = word[self.name]
            place = None if index is None else problem.shortlists[self.name][index]
            yield Known(None if place is None or np.isnan(place).any() else place)
        mine = -1.0 if index is None else float(index)
        told = np.array([[mine if agent == self.name else 0.0 for agent in agents]])
        indices = yield from self._sum("choices", told, schema.indices(agents, sizes, -1))
        all_said = {agent: int(index) for agent, index in zip(agents, indices[0], strict=True)}
        chosen = {agent: all_said[agent] for agent in graph.variables if all_said[agent] >= 0}
        whole = whole_factors(graph, chosen)
        worth = [own[f][tuple(chosen[x] for x in graph.scope(f))] if f in own else 0.0 for f in whole]
        whose = fitting.each_own([graph.owner(f) for f in whole])
        values = (yield from self._sum("choices", np.array([worth]), whose))[0] if whole else ()
        return settled(graph, chosen, values, SolveReport("deadline", timed.deadline))

    @property
    def _everybody(self) -> Part:
        """All agents that take part."""
        return all_of(self.setup.problem.graph, self.routes, self._members)

    def _composed(
        self, purpose: str, point: Float[np.ndarray, " n"], owners: Sequence[str] = (), who: Sequence[str] = ()
    ) -> Staged[Float[np.ndarray, " n"]]:
        """A joint point of the unit cube, of which each agent says the variables that are its own in this.

        The first of those who know of all (by default anybody) says the absent's, too.
        """
        members, owners = self._members, owners or self.setup.problem.graph.variable_owners
        first = next((agent for agent in members if agent in who), members[0])
        says = [owner if owner in members else first for owner in owners]
        told = np.where(np.array(says) == self.name, point, 0.0)[None]
        return (yield from self._sum(purpose, told, fitting.each_own(says, -_NEAR, 1.0 + _NEAR)))[0]

    def _sum(
        self, purpose: str, numbers: Float[np.ndarray, "k m"], fits: fitting.Fits
    ) -> Staged[Float[np.ndarray, "k m"]]:
        """The sum over all agents, up a tree of them and down again."""
        (sums,) = yield Stage(purpose, lambda post: [self._reduced(self._everybody, numbers[None], post, fits)])
        return sums

    def _reduced(
        self, part: Part, terms: Float[np.ndarray, "f k m"], post: Post, fits: fitting.Fits
    ) -> Program[Float[np.ndarray, "k m"]]:
        return ByMessages(part, self.name, post).program(asked(AllReduce(terms, fits)))

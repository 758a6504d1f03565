"""Ask, tell and attach: methods of a team with or without an environment."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsFloat, TypedDict, Unpack, overload

import msgspec
import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from swarmbo.belief.fusion import FusedBelief
from swarmbo.boundary.values import check_links, linked, query_name, storable, whole_number
from swarmbo.coordination.requests import ToAll, single_request
from swarmbo.deciding.central_driver import CentralDriver, CountedExchanges, split_traffic
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import MOST_QUERIES, Choice
from swarmbo.deciding.offers import PackedOffer, offer_of, reachable_places
from swarmbo.deciding.own_rows import Layout
from swarmbo.deciding.reports import Reports, data_of_group, news_of_group
from swarmbo.deciding.tables import Rows, attached, is_table, read_rows
from swarmbo.deciding.team_state import TeamState, atomic
from swarmbo.deciding.told import Noise, Outcome, ToldOutcome, measured_of, news_of
from swarmbo.errors import ConfigError, UnknownQueryError
from swarmbo.problem.data import News
from swarmbo.records import Query, Recommendation, SolveReport, Traffic
from swarmbo.spaces import PlaceTable
from swarmbo.transport import Faults, Routes
from swarmbo.worlds import Offers

Places = Mapping[str, ArrayLike]  # candidate locations (k, d) by agent
Table = str | os.PathLike[str] | Sequence[Mapping[str, object]] | Mapping[str, Sequence[object]]  # or any frame


class _Given(TypedDict, total=False):
    """Keyword arguments of ``AskTell.ask``."""

    links: "nx.Graph[str] | None"
    agents: Sequence[str] | None
    prices: Mapping[str, float] | None


class AskTell(TeamState):
    """Base of teams with ask and tell."""

    @overload
    def ask(
        self, count: "Places | None" = None, candidates: "Places | None" = None, **given: Unpack[_Given]
    ) -> Query: ...

    @overload
    def ask(self, count: int, candidates: "Places | None" = None, **given: Unpack[_Given]) -> list[Query]: ...

    @atomic
    def ask(
        self,
        count: "int | Places | None" = None,
        candidates: "Places | None" = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> Query | list[Query]:
        """Next query, or a batch of queries chosen sequentially.

        Each query accounts for pending queries, also of its batch, which count as evaluated for the variance only.

        Args:
            count: Number of queries, 1 to 10,000; None: one query, no list. In a field, candidates may be given
                instead.
            candidates: In a field, the locations (k, d), k >= 0, that each agent could measure, by agent; a missing
                agent has none. By default, each has 512 random locations in the box.
            links: Radio graph of the agents; other nodes only relay. None: every agent reaches every other.
            agents: In a field, the participants; by default all.
            prices: In a field, the cost of agents' measurements, in the unit of the outcome. These agents may abstain:
                an agent whose measurement has less utility than its price has no location in the query. Agents without
                a price, or with a price of 0, always measure. Until known outcomes differ, all agents measure.

        Raises:
            ConfigError: If the count is not from 1 to 10,000, an agent is unknown, or links are directed or contain no
                agent. Also if a price is not a finite number >= 0, or an argument for fields is given for a function.
            ShapeError: If candidates are not finite (k, d) arrays.
        """
        if self.problem.is_field and isinstance(count, Mapping | list | tuple | np.ndarray):
            count, candidates = None, count
        offers = Offers() if self._world is None else self._world.offers()
        given: dict[str, Any] = {"agents": agents, "candidates": candidates, "links": links}
        offers = replace(offers, **given, prices={} if prices is None else prices)
        if count is None:
            return self._ask(offers)
        return [self._ask(offers, in_batch=i > 0) for i in range(whole_number(count, 1, "$.count", MOST_QUERIES))]

    def _ask(self, offers: Offers, *, in_batch: bool = False) -> Query:
        """Next query; ``in_batch`` is True after the first query of a batch, when there are no new data."""
        check_links(offers.links, self.agents)
        self._learner, choice, sent = self._decide(offers, in_batch=in_batch)
        before = self.sent if in_batch else {}
        query = self._record_decision(choice, sent)
        self.sent = {p: before.get(p, Traffic()) + sent.get(p, Traffic()) for p in {**before, **sent}}
        return query

    def _record_decision(self, choice: Choice, sent: Mapping[str, Traffic]) -> Query:
        """Record a decision and its traffic; return its query."""
        self.sent, (agreement, self.last_sharing) = {**sent}, split_traffic(sent)
        self._log, query_id = self._log.with_query(choice.point, chosen=choice.chosen)
        # all agents know what was reported before this decision; only open queries can bring news
        self._unreported = self._unreported.after(self._log)
        report = msgspec.structs.replace(choice.report, traffic=agreement)
        self.last_query, self.last_report = choice.query(query_id, self.problem), report
        return self.last_query

    def _query_at(self, place: np.ndarray) -> Query:
        self._learn(self._present_links, before_decision=True)
        return self._record_decision(Choice(place, SolveReport(status="not_needed")), {})

    def _decide(
        self, offers: Offers, *, in_batch: bool
    ) -> tuple[FieldLearner | FunctionLearner, Choice, Mapping[str, Traffic]]:
        """Learner after the next decision, its choice, and its traffic by purpose; a subclass may decide elsewhere."""
        links, present = offers.links, None
        if isinstance(self.transport, Faults):
            present = self.transport.present(self.agents, self._log.round) or None
        exchanges = CountedExchanges(self.graph, Routes(self.agents, links, has_base=True), present)
        # within a batch, agents do not report: all its queries follow from the same data
        if not in_batch:
            self._learn(lambda: links, before_decision=True)
        learner, choice = self._driver(exchanges).run(self._learner.steps(self._log, offers))
        if isinstance(learner, FunctionLearner):
            choice = learner.expected(self._log, choice)
        # messages of a user's own planner cannot be counted here; its report states their traffic
        if "agreement" not in exchanges.sent:
            exchanges.count("agreement", choice.report.traffic)
        if not in_batch:
            self._count_reports(exchanges, offers)
        return learner, choice, exchanges.sent

    def _count_reports(self, exchanges: CountedExchanges, offers: Offers) -> None:
        """Count the reports before a decision: news, and in a field each agent's reachable locations."""
        problem, since, learner, log = self.problem, self._unreported, self._learner, self._log
        exchanges.count("sharing", since.gossip)
        if not isinstance(learner, FieldLearner):
            if since.lines:
                exchanges.count_sum("news", since.lines, Layout.of(problem).width)
            return
        # an agent with its own belief keeps its outcomes; other agents get them by fusion only
        keeps_outcomes, report_by_agent = isinstance(learner.team_belief, FusedBelief), dict[str, bytes]()
        has_sites = offers.sites is not None and len(offers.sites)
        sites = PlaceTable(np.asarray(offers.sites, dtype=float)) if has_sites else None
        all_present = exchanges.present in (None, self.agents)  # absent agents do not receive others' offers
        known, now_offered = since.offered if all_present else {}, dict[str, PackedOffer]()
        for agent in self.agents:
            places = reachable_places(agent, offers, problem, log.seed_of_episode(self.seed), log.round)
            now_offered[agent] = offer = PackedOffer.of(offer_of(agent, offers), places, sites)
            reports = Reports(problem, agent, since.of(agent), offer, offers.links, keeps_outcomes, known)
            report_by_agent[agent] = reports.packed()
        exchanges.run("reports", single_request(ToAll(report_by_agent)))
        edges = tuple(storable(list(offers.links.edges))) if keeps_outcomes and offers.links is not None else None
        self._unreported = msgspec.structs.replace(since, offered=now_offered if all_present else {}, edges=edges)

    @atomic
    def tell(
        self,
        query: Query | str,
        outcome: "Outcome" = None,
        *,
        failed: bool = False,
        point: Mapping[str, Any] | None = None,
        locations: "Mapping[str, ArrayLike] | None" = None,
        noise_std: Noise = None,
        constraints: "Mapping[str, SupportsFloat] | None" = None,
    ) -> None:
        """Learn the outcome of a query: outcomes of all its channels at once, or in parts.

        Telling a recorded outcome again changes nothing, so a message may be repeated; only outcomes are compared.

        Args:
            query: Query, or its id. Queries may be told in any order.
            outcome: Total of a function, or its factors' outcomes by name; in a field, measurements by agent. In
                physical units, True as 1; None, NaN, infinite or beyond 1e60 means failed.
            failed: True if all outcomes that are not given failed.
            point: For a function: actual point of the evaluation, if it differs from the query's.
            locations: In a field: actual locations (d,) of agents' measurements, in the box's unit, if not the query's.
            noise_std: Standard deviation >= 0 of the noise of these outcomes, in their unit, if known: one number, or a
                table like that of outcomes. It replaces the noise that the belief fits, like BoTorch's ``train_Yvar``;
                outcomes without a number keep the fitted noise.
            constraints: Measured quantities that have ``limits``, by name; they may be told for failed outcomes too.

        Raises:
            UnknownQueryError: If the query does not exist, is another team's, was given up, or lacks a channel.
            ConflictError: If a different outcome was recorded before; the message names both.
            ConfigError: If a total is told to a team that observes factors, or outcomes, points or locations are not
                tables. Also if a point lacks a variable, or has an invalid value.
            ShapeError: If an outcome is not a number, or a noise is not a finite number >= 0. Also if a location is not
                a finite (d,) array in the box, or at most 100 of its longest sides away.
        """
        query_id = self._own_query_id(query)
        if isinstance(query, Query) and not query.point and isinstance(outcome, Mapping | None) and not outcome:
            return  # every agent pauses, so there is no outcome
        quantities = measured_of(constraints, self.problem)
        news = news_of(self._log, query_id, ToldOutcome(outcome, point, locations, noise_std, failed))
        if news is not None:
            self._learn_news(query_id, news)
        if quantities:
            self._log = self._log.with_quantities(query_id, quantities)

    @atomic
    def expect(self, point: Mapping[str, Any]) -> str:
        """Note an evaluation of a function that began elsewhere: like a query, it is pending until its outcome is told.

        Args:
            point: Value of each variable.

        Returns:
            Id of the new query.

        Raises:
            ConfigError: If the point lacks a variable, has an unknown one or an invalid value, or this is a field.

        Example:
            >>> import swarmbo as sb
            >>> team = sb.Team(None, {"x": (0.0, 1.0)})
            >>> team.tell(team.expect({"x": 0.3}), 2.0)
            >>> team.history.X.tolist(), team.pending
            ([[0.3]], {})
        """
        if self.problem.is_field:
            raise ConfigError("got a point; in a field attach what others measured, with agents=…", at="$.point")
        self._log, query_id = self._log.with_query(self.problem.placed(point), chosen=False)
        self._unreported = msgspec.structs.replace(self._unreported, lines=self._unreported.lines + 1)
        return query_id

    @atomic
    def give_up(self, query: Query | str) -> None:
        """Stop waiting for a query. Its told outcomes stay; missing outcomes do not count as failed.

        Raises:
            UnknownQueryError: If no such query is pending.
        """
        query_id = self._own_query_id(query)
        self._log.query(query_id)
        self._log = self._log.without([query_id])
        self._learn(self._present_links)

    def _own_query_id(self, query: Query | str) -> str:
        """Id of a query. All teams number queries alike, so another team's query is recognised by its point."""
        query_id = query_name(query)
        asked = self._log.open.get(query_id)
        if isinstance(query, Query) and asked is not None and asked.row is None:  # else its point is the actual one
            own = self.problem.named(asked.point)
            if any(query.point.get(name) != value == value for name, value in own.items()):
                raise UnknownQueryError(f"got {query_id!r}, another team's query; wanted one of this team, or its id")
        return query_id

    def _learn_news(self, query_id: str | None, news: News | None, *, is_all: bool = False) -> None:
        """Learn news of a query, or unrequested news; ``is_all`` is True if the query gets no more outcomes."""
        self.sharing_links = None
        if news is None:
            return
        self._log, of_round = self._log.with_news(query_id, news, is_all=is_all)
        if self.problem.is_field:
            self._unreported = self._unreported.with_news(self.problem, query_id, news, of_round, is_all=is_all)
            self._learn(self._present_links)

    def _present_links(self) -> "nx.Graph[str] | None":
        """Present links of the environment; without an environment, those of the last decision."""
        return linked(self.agents, self._unreported.edges) if self._world is None else self._world.links()

    def _learn(self, links: "Callable[[], nx.Graph[str] | None]", *, before_decision: bool = False) -> None:
        """Learn new data; while a query is only partly told, wait with learning until a decision needs the data."""
        learner, since = self._learner, self._unreported
        if not isinstance(learner, FieldLearner) or not (new := since.new(self.problem)):
            return
        # separate agents learn at their next decision: a closed query, or all its parts so far. A team that learned
        # each part at once would fuse more often, and decide differently
        if not before_decision and any(of in self._log.open for of, _ in new):
            return
        learner = learner.copied()  # local beliefs learn in place, and an exception must change nothing
        # call links() only if needed: an environment has no links before its reset, and only local beliefs use them
        link_graph = links() if isinstance(learner.team_belief, FusedBelief) else None
        exchanges = CountedExchanges(self.graph, Routes(self.agents, link_graph, has_base=True))
        for key, group in new:
            if not isinstance(key, str):
                learner = learner.attach(data_of_group(self.problem, group))
                continue
            news, now = news_of_group(self.problem, group), self._log.round - 1
            learner = learner.learn(news, since.rounds[key], now, link_graph)
            belief = learner.team_belief
            exchanges.fuse(belief.take_due())
            if isinstance(belief, FusedBelief):
                exchanges.count("sharing", belief.sent)
                self.sharing_links = belief.link_report
        traffic = sum(exchanges.sent.values(), since.gossip)
        learned = (*since.learned, *(of for of, _ in new))
        self._learner, self._unreported = learner, msgspec.structs.replace(since, gossip=traffic, learned=learned)

    @atomic
    def attach(
        self,
        points: "ArrayLike | Sequence[Sequence[object]] | Table",
        outcomes: "ArrayLike | str | Mapping[str, str] | None" = None,
        *,
        rounds: "ArrayLike | float | str | None" = None,
        agents: "str | Sequence[str] | None" = None,
        columns: "Sequence[str] | None" = None,
        noise_std: "ArrayLike | float | str | Mapping[str, str] | None" = None,
        constraints: "Mapping[str, ArrayLike] | None" = None,
    ) -> None:
        """Learn evaluations that were not requested: earlier surveys, other instruments, an earlier run.

        They count as known data, and not as steps of a method.

        They are arrays, or a table: a list of dicts, a CSV file's path, a frame of pandas or another library, or a dict
        of columns. For a function, a table has a column for each variable, and outcomes in a column for each factor or
        in ``total``. In a field, the locations are in ``x``, ``y`` and ``z`` (``x0``, ``x1``, … if there are more), the
        outcomes in ``value``. A column ``agent`` names each row's agent, ``noise_std`` has the noise. Other columns are
        ignored. ``swarmbo export`` and ``to_dataframe`` write such tables.

        Args:
            points: A table, or values of joint points (t, n) in the order of ``graph.variables``. In a field, locations
                (t, d), or (t, d + 1) with the round as a last coordinate if the belief has a time axis.
            outcomes: Totals (t,), or outcomes per factor (t, k) in the order of ``graph.factors``. In a field,
                measurements (t,). For a table: the column of the outcomes, or ``{factor: column}``, if not the default.
                Entries that are missing, not finite, or beyond 1e60, count as failed.
            rounds: If the belief has a time axis: round of each evaluation (t,), one for all, or the name of a column.
                The first query has round 1; earlier rounds are 0 and below. Default: the round of the last query.
            agents: In a field, the agent that measured all of them, or the agent of each (t,); by default the first
                agent. Local beliefs get their own agent's measurements, and receive the others in the next fusion.
            columns: For a table: names of the coordinates' columns, if not the default.
            noise_std: Standard deviation >= 0 of the noise, as in ``tell``: one number, one for each point (t,), or one
                for each outcome of a factor (t, k). For a table: the column of the deviations, or ``{factor: column}``,
                if not the default. NaN: unknown.
            constraints: Measured quantities (t,) with ``limits``, by name. Default: a table's columns with their names.

        Raises:
            ShapeError: If shapes do not fit, a location is over 100 box widths away, a noise is negative, or
                there are rounds without a time axis.
            ConfigError: If a value is invalid for its variable, or a column or cell is wrong; it names row and column.
            OSError: If a file cannot be read.

        Example:
            >>> import swarmbo as sb
            >>> team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)})
            >>> team.attach([{"x": 0.1, "y": 0.5, "total": 2.0}, {"x": 0.9, "y": 0.5, "total": None}])
            >>> team.n_data, team.failures
            (1, 1)
        """
        rows = Rows(points, outcomes, agents, rounds, noise_std, constraints)
        has_names = any(isinstance(given, str | Mapping) for given in (outcomes, rounds, noise_std))
        if is_table(points):
            rows = read_rows(rows, self.problem, columns)
        elif columns is not None or outcomes is None or has_names:
            wanted = "arrays of both, or a table: a list of dicts, a CSV file's path, or a frame"
            got = "got an array of points with names of columns, or no outcomes"
            raise ConfigError(f"{got}. Wanted {wanted}", at="$.points")
        data = attached(rows, self.problem, takes_rounds=self._learner.takes_rounds)
        learner, since, present = self._learner, self._unreported, self._log.round - 1
        self._log = self._log.with_evaluations(data)
        if isinstance(learner, FieldLearner):
            problem, fades = self.problem, learner.takes_rounds
            own = {a: since.of(a).with_data(problem, a, data, present, fades=fades) for a in problem.agents}
            self._unreported = msgspec.structs.replace(since, own=own)
            self._learn(lambda: None)
        else:
            self._unreported = msgspec.structs.replace(since, lines=since.lines + len(data))

    @atomic
    def refit(self) -> None:
        """Fit the model to the history, if a fit is due; ``ask`` and ``recommend`` call it themselves."""
        self._learner = self._learner.fitted(self._log)

    @atomic
    def recommend(self) -> Recommendation | None:
        """Best point in expectation; None without data.

        In a field, it also fits the belief if a fit is due, as ``refit`` does. With a function, it changes no decision.

        With a function, the result is an evaluated point. With outcomes per factor and without ``limits``, it combines
        the best points of each part of the graph, unless these would probably fail together. In a field, the result is
        a location: one of the environment's ``sites()`` if it has any. Otherwise it is one of 2,048 quasi-random points
        of the box or of the measured locations in it.
        """
        self._learn(self._present_links, before_decision=True)
        # this traffic is not reported
        exchanges = CountedExchanges(self.graph, Routes(self.agents, None, has_base=True))
        sites = None if self._world is None else self._world.sites()
        self._learner, found = self._driver(exchanges).run(self._learner.recommend(self._log, sites))
        return found

    def _driver(self, exchanges: CountedExchanges) -> CentralDriver:
        seed, shares_outcomes = self._log.seed_of_episode(self.seed), self.problem.shares_outcomes
        return CentralDriver(self.coordination, self.transport, self._log.round, exchanges, seed, shares_outcomes)

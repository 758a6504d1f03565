"""Asking, telling and attaching: what a team does whether or not it acts in an environment."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, overload

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from swarmbo.belief import ExactGP
from swarmbo.belief.fusion import FusedBelief
from swarmbo.belief.model import Model
from swarmbo.boundary.html import html_table
from swarmbo.boundary.values import query_name, whole_number
from swarmbo.data import Dataset, News
from swarmbo.deciding.choice import Choice
from swarmbo.deciding.description import rows_of, title_of
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.in_one_place import InOnePlace
from swarmbo.deciding.rows import is_table, read_rows
from swarmbo.deciding.saved import write_state
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.taking import taken, with_attached
from swarmbo.deciding.told import Noise, Outcome, attached, news_of
from swarmbo.deciding.whole_calls import OneAtATime, whole_or_not_at_all
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.logbook import Logbook
from swarmbo.records import Query, Recommendation, SolveReport, Traffic
from swarmbo.worlds import Offers, World

STATE_VERSION = 6  # 6: rounds by that name

Places = Mapping[str, ArrayLike]  # (k, d) each
Table = str | os.PathLike[str] | Sequence[Mapping[str, object]] | Mapping[str, Sequence[object]]  # or any frame


class AskTell(OneAtATime):
    """A team that is asked and told.

    Args:
        setup: What it is made of.

    Attributes:
        setup: The same.
        problem: What it works on.
        agents: Their names.
        graph: Scopes and owners; in a field of each agent's own place.
        domain: The box of joint points, in a field that of places.
        outcomes: What is observed.
        belief_settings: What the team thinks.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: What carries their messages.
        seed: Drives everything random.
        horizon: Number of queries planned; None if unknown.
        initial: Points of the initial design; 0 in a field.
        last_query: What was asked for last.
        last_report: How the agents agreed on it.
        last_sharing: What telling one another the last outcomes took.
    """

    shared = ("_world",)

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        problem = setup.problem
        self.setup, self.problem, self.agents, self.graph = setup, problem, problem.agents, problem.graph
        self.domain, self.outcomes = problem.box, problem.outcomes
        self.acquisition, self.coordination = setup.acquisition, setup.coordination
        self.belief_settings, self.transport = setup.belief, setup.transport
        self.seed, self.horizon, self.initial = setup.seed, setup.horizon, setup.initial
        self.last_query: Query | None = None
        self.last_report: SolveReport | None = None
        self.last_sharing = Traffic()
        self._log = Logbook.empty(problem)
        self._learner = FieldLearner.empty(setup) if problem.is_field else FunctionLearner(setup)
        self._acting: str | None = None  # the query that the environment is carrying out
        self._world: World | None = None

    @overload
    def ask(
        self,
        count: "Places | None" = None,
        candidates: "Places | None" = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> Query: ...

    @overload
    def ask(
        self,
        count: int,
        candidates: "Places | None" = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> list[Query]: ...

    @whole_or_not_at_all
    def ask(
        self,
        count: "int | Places | None" = None,
        candidates: "Places | None" = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> Query | list[Query]:
        """The next query, or a batch of them, chosen one after the other.

        Each is chosen given those before it and all other pending ones: the variance takes them as evaluated, the mean
        does not move.

        Args:
            count: How many, >= 1; None for one that is not in a list. In a field candidates may stand in its place.
            candidates: In a field, for each agent the places (k, d) it could measure, k >= 0; an agent that is missing
                has none. By default 512 random ones in the box for each.
            links: Who hears whom; None means everyone.
            agents: In a field, who takes part; by default all.
            prices: In a field, what a measurement costs agents, in the unit of the outcome. These may decline: an agent
                whose measurement is not worth its price has no place in the query. Others, and those who pay nothing,
                measure in any case.

        Raises:
            ConfigError: If the count is not at least 1, an agent is unknown, links are directed, a price is no finite
                number >= 0, or what only a field has is given for a function.
            ShapeError: If candidates are not finite (k, d) arrays.
        """
        if self.problem.is_field and isinstance(count, Mapping | list | tuple | np.ndarray):
            count, candidates = None, count
        offers = Offers() if self._world is None else self._world.offers()
        given: dict[str, Any] = {"agents": agents, "candidates": candidates, "links": links}
        offers = replace(offers, **given, prices={} if prices is None else prices)
        if count is None:
            return self._ask(offers)
        return [self._ask(offers) for _ in range(whole_number(count, 1, "$.count"))]

    def _ask(self, offers: Offers) -> Query:
        self._learner, choice = self._decided(offers)
        self._log, query_id = self._log.with_query(choice.point, chosen=choice.chosen)
        self.last_query, self.last_report = choice.query(query_id, self.problem), choice.report
        return self.last_query

    def _decided(self, offers: Offers) -> tuple[FieldLearner | FunctionLearner, Choice]:
        """What to evaluate next; a subclass may have it decided elsewhere."""
        return self._learner.decide(self._log, offers)

    @whole_or_not_at_all
    def tell(
        self,
        query: Query | str,
        outcome: "Outcome" = None,
        *,
        failed: bool = False,
        point: Mapping[str, float] | None = None,
        locations: "Mapping[str, ArrayLike] | None" = None,
        noise_std: Noise = None,
    ) -> None:
        """Learn the outcome of a query; outcomes of its channels all at once, or some now and the rest later.

        Args:
            query: The query, or its id. Queries may be told in any order.
            outcome: The total of a function or a table of its factors' outcomes; in a field a table of agents'
                measurements. In physical units; None, NaN, infinite or beyond 1e60 means failed.
            failed: Whether what is not told failed.
            point: Of a function: where it was really evaluated, if not at the query's point.
            locations: In a field: where agents really measured (d,), if not at the query's places.
            noise_std: Standard deviation >= 0 of the noise of what is told, in its unit, where it is known: one number,
                or a table like that of outcomes. It takes the place of the noise that the belief fits, as BoTorch's
                ``train_Yvar`` does; outcomes without one keep the fitted noise.

        Raises:
            UnknownQueryError: If no such query is pending, or it waits for no such channel: an unknown one, takes no
                part or was told before.
            ConfigError: If a total is told to a team that observes channels, or something is no table; a point lacks a
                variable or is not in bounds.
            ShapeError: If an outcome is no number, a noise is no finite number >= 0, or a location is not a finite (d,)
                array in or near the box.
        """
        query_id = query_name(query)
        self._take(query_id, news_of(self._log, query_id, outcome, point, locations, noise_std, failed=failed))

    @whole_or_not_at_all
    def expect(self, point: Mapping[str, float]) -> str:
        """Note an evaluation of a function that somebody else began: it is pending until it is told, as a query is.

        Args:
            point: The value of each variable.

        Returns:
            An id to tell it by.

        Raises:
            ConfigError: If the point lacks a variable or is not in bounds, or the team is one in a field.

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
        return query_id

    @whole_or_not_at_all
    def give_up(self, query: Query | str) -> None:
        """Wait no longer for a query. What was told of it stays, and what was not has not failed.

        Raises:
            UnknownQueryError: If no such query is pending.
        """
        query_id = query_name(query)
        self._log.query(query_id)
        self._log = self._log.without([query_id])

    def _take(self, query_id: str | None, news: News, *, is_all: bool = False) -> None:
        """Learn news: of a query, and of what nobody asked for; ``is_all``: nothing more will come of the query."""
        links = None if self._world is None else self._world.links()
        self._log, self._learner, self.last_sharing = taken(
            self._log, self._learner, query_id, news, links, is_all=is_all
        )

    @whole_or_not_at_all
    def attach(
        self,
        points: "ArrayLike | Table",
        outcomes: "ArrayLike | str | Mapping[str, str] | None" = None,
        *,
        rounds: "ArrayLike | float | str | None" = None,
        agents: "str | Sequence[str] | None" = None,
        columns: "Sequence[str] | None" = None,
        noise_std: "ArrayLike | float | str | Mapping[str, str] | None" = None,
    ) -> None:
        """Learn evaluations that were never asked for: earlier surveys, other instruments, an earlier run.

        They count as known, and not as steps of a method.

        They are arrays, or a table with a column for each variable: a list of dicts, a CSV file's path, a frame of
        pandas or another library, or a dict of columns. Of a function the outcomes are in a column for each factor, or
        in ``total``; in a field the places are in ``x``, ``y`` and ``z`` (``x0``, ``x1``, … if there are more), the
        outcomes in ``value``, and who measured in ``agent``, if there is such a column. Other columns are not read.
        What ``swarmbo export`` and ``to_dataframe`` write is such a table.

        Args:
            points: A table, or joint points (t, n), physical, in the order of ``graph.variables``; in a field places
                (t, d), or (t, d + 1) with the round as a last coordinate where the belief has a time axis.
            outcomes: Totals (t,), or outcomes by factor (t, k) in the order of ``graph.factors``; in a field
                measurements (t,). Of a table the name of their column, or ``{factor: column}``, where it is another.
                Entries that are missing, not finite, or beyond 1e60, count as failed.
            rounds: The round of each (t,), or one for all, or the name of a column, where the belief has a time axis:
                the first query is of round 1, earlier ones are 0 and below. By default that of the last query.
            agents: In a field who made all of them, or each (t,); by default the first agent. Where each agent has a
                belief of its own, they are given theirs, and the others hear of them when next the agents talk.
            columns: Of a table the columns of the coordinates, where they have other names.
            noise_std: Standard deviation >= 0 of the noise, as in ``tell``: one number, one for each point (t,), or one
                for each outcome of a factor (t, k); of a table the name of their column, or ``{factor: column}``. NaN,
                and by default: not known.

        Raises:
            ShapeError: If shapes do not fit, a location is not finite or nowhere near the box, or a noise is negative.
            ConfigError: If a joint point is not in bounds, or a column or a cell of a table is not what is wanted; it
                names row and column.
            OSError: If a file cannot be read.

        Example:
            >>> import swarmbo as sb
            >>> team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)})
            >>> team.attach([{"x": 0.1, "y": 0.5, "total": 2.0}, {"x": 0.9, "y": 0.5, "total": None}])
            >>> team.n_data, team.failures
            (1, 1)
        """
        if is_table(points):
            named = {"rounds": rounds, "noise_std": noise_std}
            named = {key: given for key, given in named.items() if isinstance(given, str | Mapping)}
            rows = read_rows(points, self.problem, outcomes, columns, **named)
            points, outcomes = rows.points, rows.outcomes
            agents = rows.agents if agents is None else agents
            rounds = rows.rounds if "rounds" in named else rounds
            noise_std = rows.noise_std if "noise_std" in named else noise_std
        elif (
            columns is not None
            or outcomes is None
            or any(isinstance(given, str | Mapping) for given in (outcomes, rounds, noise_std))
        ):
            raise ConfigError(
                "got an array of points with names of columns, or no outcomes; wanted arrays of both, or "
                "a table: a list of dicts, a CSV file's path, or a frame",
                at="$.points",
            )
        data = attached(points, outcomes, self.problem, rounds, agents, noise_std)
        self._log, self._learner = with_attached(self._log, self._learner, data)

    @whole_or_not_at_all
    def refit(self) -> None:
        """Learn what the history says, if that is due; ``ask`` and ``recommend`` do so by themselves."""
        self._learner = self._learner.fitted(self._log)

    @whole_or_not_at_all
    def recommend(self) -> Recommendation | None:
        """What is worth most in expectation; None while there is no data.

        Of a function no later decision depends on it; in a field it fits the belief where that is due, as ``refit`` does.

        Of a function it is an evaluated point; where factors are observed one by one it is put together from the best
        of what each part of the graph saw. In a field it is a place: the environment's ``sites()`` are compared where
        it has them, else 2,048 quasi-random points of the box and the places in it that were measured.
        """
        answering = InOnePlace(self.coordination, self.transport, self._log.round)
        self._learner, found = answering.run(self._learner.recommend(self._log, self._world))
        return found

    @property
    def belief(self) -> ExactGP | FusedBelief:
        """What a team in a field believes; that of a function is ``model.belief``."""
        if isinstance(self._learner, FieldLearner):
            return self._learner.belief
        raise AttributeError("what a team believes of a function is its model's: team.model.belief")

    @property
    def model(self) -> Model:
        """What the team makes of the history of a function; pending points count as evaluated in the variance."""
        return self._modelled()

    @whole_or_not_at_all
    def _modelled(self) -> Model:
        if not isinstance(self._learner, FunctionLearner):
            raise AttributeError("a team in a field has no model of a sum; what it believes is team.belief")
        self._learner, model = self._learner.modelled(self._log)
        return model

    @property
    def round(self) -> int:
        """Number of queries, in a field of this episode."""
        return self._log.round - 1

    @property
    def history(self) -> Dataset:
        """Everything that was evaluated so far."""
        return self._log.history

    @property
    def n_data(self) -> int:
        """Number of evaluated points with at least one outcome; in a field, of measurements that did not fail."""
        return self._learner.n_data(self._log)

    @property
    def failures(self) -> int:
        """Number of outcomes that failed."""
        return self._log.failures

    @property
    def pending(self) -> dict[str, dict[str, float]]:
        """Queries that wait for outcomes: the point of each by its id, in the order in which they were asked."""
        return {name: self.problem.named(query.point) for name, query in self._log.open.items()}

    @property
    def world(self) -> World | None:
        """The environment that the team acts in; None for a team that is asked and told."""
        return self._world

    @whole_or_not_at_all
    def state_dict(self) -> dict[str, Any]:
        """All of the team, as ``{"json": plain data, "arrays": {name: array}}``: no pickle."""
        log, rows = self._log.to_state()
        learned, arrays = self._learner.to_state()
        plain = {
            "version": STATE_VERSION,
            "problem": self.problem.to_plain(),
            "settings": self.setup.to_plain(),
            "log": log,
            "acting": self._acting,
            **learned,
        }
        return {"json": plain, "arrays": rows | arrays}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of the team to one file, whole or not at all: ``Team.load`` goes on from it to the bit.

        The file holds numbers and JSON, no pickle; ``numpy.load`` reads it. Of parts of your own making it has the
        names and, where they are ``Settings``, the settings.

        Args:
            path: Of the file; one that is there is replaced.

        Raises:
            OSError: If it cannot be written.
        """
        write_state(path, self.state_dict())

    @whole_or_not_at_all
    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Go on from a saved state, in place and with this team's own settings of acquisition and coordination.

        Args:
            state: What ``state_dict`` of a team with the same problem and belief settings returned.

        Raises:
            StateVersionError: If another version of swarmbo, or another team, wrote it.
        """
        plain, arrays, own = state["json"], state["arrays"], self.setup.to_plain()
        require_version(plain)
        require_same(plain["problem"], self.problem.to_plain())
        require_same({"belief": plain["settings"]["belief"]}, {"belief": own["belief"]})
        self._log, self._acting = self._log.from_state(plain["log"], arrays), plain["acting"]
        self._learner = self._learner.from_state(plain, arrays)
        if self._world is not None:
            self._world.begin({})
        return self

    def __repr__(self) -> str:
        """What it is and how far, in one line."""
        parts = [f"{label} {text}" if label not in ("data", "best outcome") else text for label, text in rows_of(self)]
        return f"<{title_of(self)}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return html_table(title_of(self), rows_of(self))


def require_version(plain: Mapping[str, Any]) -> None:
    """Refuse the state of another version."""
    if plain.get("version") != STATE_VERSION:
        raise StateVersionError(f"got team state version {plain.get('version')}; wanted {STATE_VERSION}")


def require_same(plain: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse the state of a team that is another in something that no state can change."""
    for key in own:
        if plain.get(key) != own[key]:
            raise StateVersionError(f"got the state of a team with other {key}, {plain.get(key)}; wanted {own[key]}")

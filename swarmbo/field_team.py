"""A team: asks for joint queries, learns from their outcomes, and drives a PettingZoo environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from pettingzoo import ParallelEnv

from swarmbo.acquisition import Situation
from swarmbo.belief import ExactGP, view_of
from swarmbo.belief.fusion import FusedBelief
from swarmbo.candidate_places import checked_candidates, places_to_recommend, random_candidates
from swarmbo.checks import (
    LARGEST_OUTCOME,
    check_links,
    query_name,
    real_array,
    reported_number,
    short,
    table,
    whole_number,
)
from swarmbo.data import Dataset
from swarmbo.deciding import decide
from swarmbo.errors import ConfigError, ShapeError, UnknownQueryError
from swarmbo.field_belief import (
    empty_belief,
    measured_places,
    required_of,
    saved_belief,
    with_fit,
    with_pending,
    with_readings,
    with_survey,
)
from swarmbo.kinds import Given, OwnFieldBelief, Planner, Solver, field_kinds, settings_again, to_plain
from swarmbo.logbook import Logbook
from swarmbo.one_at_a_time import OneAtATime, whole_or_not_at_all
from swarmbo.problem import Problem
from swarmbo.readings import Outcome, Reading, reported
from swarmbo.records import Query, Recommendation, SolveReport, Traffic
from swarmbo.spaces import Domain
from swarmbo.team_state import STATE_VERSION, require_same, require_version
from swarmbo.world import World

Locations = Mapping[str, ArrayLike]  # (d,) each
Places = Mapping[str, ArrayLike]  # (k, d) each


class FieldTeam(OneAtATime):
    """A team of agents that share a Gaussian-process belief and agree on joint batches of measurements.

    Make one with ``Team.for_env`` (drives a PettingZoo environment) or ``Team.for_field`` (ask and tell).
    The team maximises. Decisions repeat to the bit for one seed and one number of linear-algebra threads
    (``swarmbo run`` sets it to one), in whichever order agents and outcomes come.

    Several threads may call a team; one call runs at a time. A call that ends in an exception, be it
    ``KeyboardInterrupt``, changes nothing; but where agents have beliefs of their own, an interrupt while they talk may
    leave some of them knowing more.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], seed=1)
        >>> query = team.ask()
        >>> team.tell(query, {agent: -float(((x - 0.3) ** 2).sum()) for agent, x in query.points.items()})
        >>> team.belief.n_data
        2
    """

    def __init__(
        self,
        agents: Sequence[str],
        domain: Domain,
        *,
        belief: Given | OwnFieldBelief = "exact",
        acquisition: Given = "db-gp-ucb",
        coordination: Given | Solver | Planner = "exact",
        transport: Given = "in-process",
        seed: int = 0,
        rounds: int | None = None,
    ) -> None:
        super().__init__()
        self.problem = Problem.of_field(agents, domain)
        self.agents = self.problem.agents
        seed, rounds = whole_number(seed, 0, "$.seed"), None if rounds is None else whole_number(rounds, 1, "$.rounds")
        self.domain = domain
        kinds = field_kinds(belief, acquisition, coordination, transport)
        self.belief_settings, self.acquisition, self.coordination, self.transport = kinds
        self.seed, self.horizon = seed, rounds
        self.belief: ExactGP | FusedBelief = empty_belief(self.belief_settings, domain, self.agents, seed)
        self.last_query: Query | None = None
        self.last_report: SolveReport | None = None
        self.last_sharing = Traffic()
        self._log = Logbook.empty(self.problem)
        self._acting: str | None = None  # the query that the environment is carrying out
        self._world: World | None = None
        self._positions: dict[str, np.ndarray] = {}
        self._starts: dict[str, np.ndarray] = {}

    @classmethod
    def for_field(
        cls, agents: Sequence[str], low: Sequence[float], high: Sequence[float], **settings: Any
    ) -> "FieldTeam":
        """A team whose agents may each measure anywhere in a box.

        Args:
            agents: Their names.
            low: Lower bounds (d,) of a location.
            high: Upper bounds (d,).
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport`` (a kind's name, its settings
                object, or a table), ``seed``, ``rounds``.
        """
        return cls(agents, Domain(np.asarray(low), np.asarray(high)), **settings)

    @classmethod
    def for_env(cls, env: "ParallelEnv[str, Any, Any]", **settings: Any) -> "FieldTeam":
        """A policy for a sensing environment: each agent's action is where it measures next.

        Args:
            env: The environment; ``swarmbo.world.World`` says what it must and may offer.
            **settings: As for ``for_field``; ``rounds`` defaults to the environment's ``max_cycles``.

        Raises:
            ConfigError: If action spaces are no finite boxes, or differ, or the acquisition needs a level and nobody
                states one.
        """
        world = World(env)
        settings.setdefault("rounds", world.horizon)
        team = cls(world.agents, world.domain, **settings)
        team._world = world
        team.acquisition.check_world(world.level)
        return team

    @whole_or_not_at_all
    def begin(self, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Start an episode: learn from the infos of ``env.reset`` where the agents are and what they measured there.

        ``act`` calls it before the first round. Call it yourself before a further episode; the belief is kept. Rounds
        are counted from 0 again: where data fade, those of an earlier episode count as of the same round of this one.
        """
        self._acting, self._positions, self._starts = None, {}, {}
        self._log = self._log.in_new_episode()
        self._learn(readings := reported(infos, self.agents, {}, self.domain), self.round)
        self._log = self._with_readings(readings, chosen=False)

    @whole_or_not_at_all
    def act(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, np.ndarray]:
        """Actions for every live agent.

        Args:
            observations: As returned by the environment; only its keys are used.
            infos: Likewise; used in the first round only, where they are those of ``reset``.

        Returns:
            For each agent where it measures next. An agent with nowhere to go is told to stay where it is, or to do
            without a measurement where it can.
        """
        world = self._in_world
        if self.round == 0 and not self._positions and infos:
            self.begin(infos)
        if self._acting is not None:
            self._log = self._log.without([self._acting])  # its outcomes were never observed, and now they can't be
        agents = tuple(agent for agent in self.agents if agent in observations and agent in world.live)
        query = self.ask(world.candidates(agents), links=world.links(), agents=agents, prices=world.prices(agents))
        self._acting = query.id
        middle = (self.domain.low + self.domain.high) / 2
        stay = {agent: self._positions.get(agent, middle) for agent in agents}
        return {
            agent: world.action(agent, point, measures=agent in query.points)
            for agent, point in (stay | query.points).items()
        }

    @whole_or_not_at_all
    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Learn from what ``env.step`` returned: ``team.observe(*env.step(actions))``. Only the infos are used.

        A measurement that is missing, no number, not finite or beyond 1e60 counts as failed, and so does one made
        nowhere near the field; the others are learned from.
        """
        sent: Mapping[str, np.ndarray] = {}
        if self._acting is not None and self._acting in self._log.open:
            query = self._log.open[self._acting]
            sent = self.problem.places(query.point, query.waits)
            self._log = self._log.without([self._acting])
        self._acting = None
        self._learn(readings := reported(infos, self.agents, sent, self.domain), self.round)
        self._log = self._with_readings(readings, chosen=bool(sent))

    @whole_or_not_at_all
    def ask(
        self,
        candidates: Places | None = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> Query:
        """A joint batch: one place for each agent that has somewhere to go, chosen together.

        The variance takes queries that are still out as measured, so that a further query looks elsewhere.

        Args:
            candidates: For each agent the places (k, d) it could measure, k >= 0; an agent that is missing has none. By
                default 512 random ones in the box for each.
            links: Who hears whom; None means everyone.
            agents: Who takes part; by default all.
            prices: What a measurement costs agents, in the unit of the outcome. These may decline: an agent whose
                measurement is not worth its price has no place in the query. Others, and those who pay nothing,
                measure in any case.

        Raises:
            ConfigError: If an agent is unknown, links are directed, or a price is no finite number >= 0.
            ShapeError: If candidates are not finite (k, d) arrays.
        """
        takes_part = self._known(self.agents if agents is None else agents)
        check_links(links)
        now = self._log.round
        places = self._places(takes_part, candidates, now)
        prices = {} if prices is None else dict(table(prices, "{agent: price}", "$.prices"))
        self._known(list(prices))
        for agent, price in prices.items():
            if not reported_number(price) >= 0.0:
                raise ConfigError(f"got {short(price)}; wanted a finite number >= 0", at=f"$.prices.{agent}")
        self.refit()
        self.belief = self.belief.at(now)
        belief = with_pending(self.belief, self._log, now)
        decision = decide(
            Situation(
                agents=takes_part,
                candidates=places,
                positions=self._positions | (self._world.standpoints() if self._world else {}),
                starts=self._starts,
                belief=belief,
                links=links,
                domain=self.domain,
                round=now,
                horizon=self.horizon,
                seed=self.seed,
                prices={agent: float(price) for agent, price in prices.items() if price > 0.0},
                level=self._world.level if self._world else None,
                required=required_of(self.belief, self._log, takes_part, self.domain, now),
            ),
            self.acquisition,
            self.coordination,
            self.transport,
        )
        points = {agent: decision.points[agent].copy() for agent in takes_part if agent in decision.points}
        predictions = [view_of(belief, agent).posterior(point[None]) for agent, point in points.items()]
        self._log, query_id = self._log.with_query(self.problem.joint(points))
        query = Query(
            id=query_id,
            points=points,
            means={agent: float(mean[0]) for agent, (mean, _) in zip(points, predictions, strict=True)},
            stds={agent: float(np.sqrt(var[0])) for agent, (_, var) in zip(points, predictions, strict=True)},
        )
        self.last_query, self.last_report = query, decision.report
        return query

    @whole_or_not_at_all
    def tell(
        self,
        query: Query | str,
        outcomes: Mapping[str, Outcome] | None = None,
        *,
        locations: Locations | None = None,
        failed: bool = False,
    ) -> None:
        """Learn the outcomes of a query: all of them or some now, the rest later, in any order.

        Args:
            query: The query, or its id.
            outcomes: For each agent that reports its measurement in physical units; None, NaN, infinite or
                beyond 1e60 means failed.
            locations: Where it was really measured (d,), if not at the query's point.
            failed: Whether every measurement not in ``outcomes`` failed.

        Raises:
            UnknownQueryError: If no such query is out, or an agent has no open measurement in it.
            ConfigError: If outcomes or locations are no tables.
            ShapeError: If a location is not a finite (d,) array in or near the box, or an outcome is no number.
        """
        query_id = query_name(query)
        outcomes = {} if outcomes is None else dict(table(outcomes, "{agent: outcome}", "$.outcomes"))
        locations = {} if locations is None else dict(table(locations, "{agent: location}", "$.locations"))
        asked = self._log.query(query_id, outcomes)
        sent = self.problem.places(asked.point, asked.waits)
        if strangers := [agent for agent in locations if agent not in outcomes]:
            raise UnknownQueryError(f"got locations of {strangers} without outcomes; wanted both or only outcomes")
        told = {
            agent: Reading.of(agent, locations.get(agent, sent[agent]), outcome, self.domain)
            for agent, outcome in outcomes.items()
        }
        if failed:
            told |= {agent: Reading(point, np.nan) for agent, point in sent.items() if agent not in told}
        self._learn({agent: told[agent] for agent in self.agents if agent in told}, asked.moment)
        point = self.problem.joint({agent: reading.place for agent, reading in told.items()})
        self._log = self._log.with_factors(query_id, {a: reading.outcome for a, reading in told.items()}, point=point)

    @whole_or_not_at_all
    def attach(self, locations: ArrayLike, outcomes: ArrayLike) -> None:
        """Learn measurements that were never asked for: earlier surveys, other instruments.

        Where each agent has a belief of its own, the first agent is given them; the others hear of them when next the
        agents talk.

        Args:
            locations: Where (n, d), in physical units. Of a belief with a time axis they are of the present round, or
                state theirs as a last coordinate.
            outcomes: What (n,); entries that are not finite, or beyond 1e60, count as failed.

        Raises:
            ShapeError: If shapes do not fit, or a location is not finite or nowhere near the box.
        """
        given, told = real_array(locations), real_array(outcomes)
        if given is None or told is None:
            got = short(locations if given is None else outcomes)
            raise ShapeError(f"got {got}; wanted arrays of numbers, NaN where a measurement failed")
        X, y, d = np.atleast_2d(given), told.reshape(-1), self.domain.n_dims
        if X.shape != (len(y), d) and not (self.belief.has_time and X.shape == (len(y), d + 1)):
            raise ShapeError(f"got locations {X.shape} and {len(y)} outcomes; wanted ({len(y)}, {self.domain.n_dims})")
        if not (near := self.domain.is_near(X[:, :d]) & np.isfinite(X).all(axis=1)).all():
            row = int(np.argmin(near))
            raise ShapeError(f"locations[{row}]: got {X[row].tolist()}; wanted finite numbers, in or near the box")
        good = np.abs(y) < LARGEST_OUTCOME
        self.belief = with_survey(self.belief, self.agents[0], X[good], y[good], X[~good])
        first, k = self.agents[0], len(self.agents)
        joint, factors = np.full((len(y), k * d), np.nan), np.full((len(y), k), np.nan)
        joint[:, self.problem.columns(first)], factors[good, 0] = X[:, :d], y[good]
        moments = X[:, d] if X.shape[1] > d else self.round
        self._log = self._log.with_evaluations(joint, np.full(len(y), np.nan), factors, moments)

    @whole_or_not_at_all
    def refit(self) -> None:
        """Fit the belief's hyper-parameters if they are due; ``ask`` and ``recommend`` do so by themselves.

        Agents with beliefs of their own fit when they talk, and there is nothing to do here.
        """
        self.belief = with_fit(self.belief, self.seed)

    @whole_or_not_at_all
    def recommend(self) -> Recommendation | None:
        """Where the belief's mean is largest, over the places that can be measured; None while there is no data.

        The places are the environment's ``sites()`` where it has them, else 2,048 quasi-random points of the box and
        the locations in it that were measured.
        """
        if self.belief.n_data == 0:
            return None
        self.refit()
        places = self._world.sites() if self._world else None
        if places is None:
            places = places_to_recommend(self.domain, measured_places(self.belief, self.domain.n_dims), self.seed)
        best = places[int(self.belief.posterior_mean(places).argmax())]
        mean, var = self.belief.posterior(best[None])
        return Recommendation(best.tolist(), float(mean[0]), float(np.sqrt(var[0])))

    @whole_or_not_at_all
    def state_dict(self) -> dict[str, Any]:
        """All of the team, as ``{"json": plain data, "arrays": {name: array}}``: no pickle."""
        belief, (log, rows) = self.belief.state_dict(), self._log.to_state()
        plain = {
            "version": STATE_VERSION,
            "agents": list(self.agents),
            "low": self.domain.low.tolist(),
            "high": self.domain.high.tolist(),
            "settings": {
                "belief": to_plain(self.belief_settings),
                "acquisition": to_plain(self.acquisition),
                "coordination": to_plain(self.coordination),
                "transport": to_plain(self.transport),
                "seed": self.seed,
                "rounds": self.horizon,
            },
            "log": log,
            "acting": self._acting,
            "positions": {agent: position.tolist() for agent, position in self._positions.items()},
            "starts": {agent: start.tolist() for agent, start in self._starts.items()},
            "belief": belief["json"],
        }
        return {"json": plain, "arrays": rows | {f"belief/{n}": array for n, array in belief["arrays"].items()}}

    @classmethod
    def from_state_dict(
        cls, state: Mapping[str, Any], env: "ParallelEnv[str, Any, Any] | None" = None, **own: object
    ) -> "FieldTeam":
        """The team whose ``state_dict`` this is, going on to the bit.

        Args:
            state: The saved state.
            env: The environment that it acts in, if it does.
            **own: ``belief``, ``acquisition`` or ``coordination``, if it is of your own making: a state has its name
                only, and loads no code.

        Raises:
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If a part is of your own making, and was not given again.
        """
        plain = state["json"]
        require_version(plain)
        settings = settings_again(plain["settings"], own)
        if env is not None:
            return cls.for_env(env, **settings).load_state_dict(state)
        return cls.for_field(plain["agents"], plain["low"], plain["high"], **settings).load_state_dict(state)

    @whole_or_not_at_all
    def load_state_dict(self, state: Mapping[str, Any]) -> "FieldTeam":
        """Go on from a saved state, in place and with this team's own settings of acquisition and coordination.

        Args:
            state: What ``state_dict`` of a team with the same agents, domain and belief settings returned.

        Raises:
            StateVersionError: If another version of swarmbo, or another team, wrote it.
        """
        plain, arrays, own = state["json"], state["arrays"], self.state_dict()["json"]
        require_version(plain)
        require_same(plain, own, ("agents", "low", "high"))
        require_same(plain["settings"], own["settings"], ("belief",))
        self._log, self._acting = self._log.from_state(plain["log"], arrays), plain["acting"]
        self._positions = {agent: np.array(position) for agent, position in plain["positions"].items()}
        self._starts = {agent: np.array(start) for agent, start in plain["starts"].items()}
        belief_arrays = {n.removeprefix("belief/"): a for n, a in arrays.items() if n.startswith("belief/")}
        belief_state = {"json": plain["belief"], "arrays": belief_arrays}
        self.belief = saved_belief(self.belief_settings, self.domain, self.agents, self.seed, belief_state)
        return self

    @property
    def round(self) -> int:
        """Number of queries in this episode."""
        return self._log.round - 1

    @property
    def history(self) -> Dataset:
        """Everything that was measured so far."""
        return self._log.history

    @property
    def failures(self) -> int:
        """Number of measurements that failed."""
        return self._log.failures

    @property
    def world(self) -> World | None:
        """The world it acts in; None for a team that is asked and told."""
        return self._world

    @property
    def _in_world(self) -> World:
        if self._world is None:
            raise ConfigError("this team has no environment to act in; make it with Team.for_env", at="$.environment")
        return self._world

    def _known(self, agents: Sequence[str]) -> tuple[str, ...]:
        """Agents in the team's order, whichever order they are named in."""
        if strangers := [agent for agent in agents if agent not in self.agents]:
            raise ConfigError(f"got {short(strangers)}; wanted some of {list(self.agents)}", at="$.agents")
        return tuple(agent for agent in self.agents if agent in agents)

    def _places(self, agents: tuple[str, ...], candidates: Places | None, round_number: int) -> dict[str, np.ndarray]:
        if candidates is None:
            boxes = self._world.boxes if self._world else dict.fromkeys(agents, self.domain)
            return random_candidates({agent: boxes[agent] for agent in agents}, self.seed, round_number)
        self._known(list(table(candidates, "{agent: places}", "$.candidates")))
        return checked_candidates(candidates, agents, self.domain)

    def _learn(self, readings: Mapping[str, Reading], moment: int) -> None:
        """Learn what agents measured in a round, in the team's order, and move them to where they did."""
        links = self._world.links() if self._world else None
        self.belief, self.last_sharing = with_readings(
            self.belief, readings, self.agents, links, moment=moment, now=self.round
        )  # first what may refuse them, so that nothing has changed if it does
        places = {agent: reading.place for agent, reading in readings.items()}
        self._positions, self._starts = self._positions | places, places | self._starts

    def _with_readings(self, readings: Mapping[str, Reading], *, chosen: bool) -> Logbook:
        """The logbook with what agents measured in a world, whether they were sent there or not."""
        if not readings:
            return self._log
        factors = np.array([[readings[agent].outcome if agent in readings else np.nan for agent in self.agents]])
        point = self.problem.joint({agent: reading.place for agent, reading in readings.items()})
        nothing = np.array([np.nan])
        return self._log.with_evaluations(point[None], nothing, factors, self.round, attached=False, chosen=chosen)

"""A team: asks for joint queries, learns from their outcomes, and drives a PettingZoo environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float
from pettingzoo import ParallelEnv
from scipy.stats import qmc

from swarmbo.acquisition import DBGPUCB, Decision, Situation
from swarmbo.agent import solve_with_agents
from swarmbo.baselines import Greedy, Independent, LawnMower, Random
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.coordination import Exact, MaxSum
from swarmbo.errors import ConfigError, ShapeError, StateVersionError, UnknownQueryError
from swarmbo.records import Query, Recommendation, SolveReport, Traffic
from swarmbo.rng import stream
from swarmbo.settings import resolve
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess, Routes, broadcast_traffic
from swarmbo.world import World

BeliefSettings = ExactGPSettings
AcquisitionSettings = DBGPUCB
CoordinationSettings = Exact | MaxSum | Independent | Greedy | Random | LawnMower
TransportSettings = InProcess

DEFAULT_KINDS = {"belief": "exact", "acquisition": "db-gp-ucb", "coordination": "exact", "transport": "in-process"}
_STATE_VERSION = 1
_N_DEFAULT_CANDIDATES = 512

Locations = Mapping[str, Float[np.ndarray, " d"]]


class Team:
    """A team of agents that share a Gaussian-process belief and agree on joint batches of measurements.

    Make one with ``Team.for_env`` (drives a PettingZoo environment) or ``Team.for_field`` (ask and tell).
    The team maximises. ``state_dict`` holds all of it, as plain data and arrays.

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
        belief: BeliefSettings | str | dict[str, Any] = "exact",
        acquisition: AcquisitionSettings | str | dict[str, Any] = "db-gp-ucb",
        coordination: CoordinationSettings | str | dict[str, Any] = "exact",
        transport: TransportSettings | str | dict[str, Any] = "in-process",
        seed: int = 0,
        rounds: int | None = None,
    ) -> None:
        if not agents or len(set(agents)) != len(agents):
            raise ConfigError(f"got {list(agents)}; wanted at least one agent, no name twice", at="$.agents")
        if seed < 0:
            raise ConfigError(f"got {seed}; wanted an integer >= 0", at="$.seed")
        if rounds is not None and rounds < 1:
            raise ConfigError(f"got {rounds}; wanted an integer >= 1, or None", at="$.rounds")
        self.agents = tuple(agents)
        self.domain = domain
        self.acquisition = resolve(acquisition, AcquisitionSettings, "$.acquisition")
        self.coordination = resolve(coordination, CoordinationSettings, "$.coordination")
        self.transport = resolve(transport, TransportSettings, "$.transport")
        self.belief_settings = resolve(belief, BeliefSettings, "$.belief")
        self.seed, self.horizon = seed, rounds
        self.belief = ExactGP.create(self.belief_settings, domain)
        self.round = 0
        self.failures = 0
        self.last_query: Query | None = None
        self.last_report: SolveReport | None = None
        self.last_sharing = Traffic()
        self._world: World | None = None
        self._pending: dict[str, dict[str, np.ndarray]] = {}
        self._positions: dict[str, np.ndarray] = {}
        self._starts: dict[str, np.ndarray] = {}

    @classmethod
    def for_field(cls, agents: Sequence[str], low: Sequence[float], high: Sequence[float], **settings: Any) -> "Team":
        """A team whose agents may each measure anywhere in a box.

        Args:
            agents: Their names.
            low: Lower bounds (d,) of a location.
            high: Upper bounds (d,).
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport`` (a kind's name, its settings
                object, or a table), ``seed``, ``rounds``.
        """
        return cls(agents, Domain(np.asarray(low, dtype=float), np.asarray(high, dtype=float)), **settings)

    @classmethod
    def for_env(cls, env: "ParallelEnv[str, Any, Any]", **settings: Any) -> "Team":
        """A policy for a sensing environment: each agent's action is where it measures next.

        Args:
            env: The environment; ``swarmbo.world.World`` says what it must and may offer.
            **settings: As for ``for_field``; ``rounds`` defaults to the environment's ``max_cycles``.

        Raises:
            ConfigError: If action spaces are no finite boxes, or differ.
        """
        world = World(env)
        settings.setdefault("rounds", world.horizon)
        team = cls(world.agents, world.domain, **settings)
        team._world = world
        return team

    def act(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, np.ndarray]:
        """Actions for every live agent; the first call also learns from the infos of ``reset``.

        Args:
            observations: As returned by the environment; only its keys are used.
            infos: Likewise.

        Returns:
            For each agent where it measures next. An agent with nowhere to go is told to stay where it is.
        """
        if self.round == 0 and self.belief.n_data == 0 and infos:
            self._learn(infos, {})
        agents = tuple(observations)
        query = self.ask(self._in_world.candidates(agents), links=self._in_world.links(), agents=agents)
        middle = (self.domain.low + self.domain.high) / 2
        stay = {agent: self._positions.get(agent, middle) for agent in agents}
        return {agent: self._in_world.action(agent, point) for agent, point in (stay | query.points).items()}

    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Learn from what ``env.step`` returned: ``team.observe(*env.step(actions))``.

        A measurement that is missing or not finite counts as failed; the others are learned from.
        """
        points = self._pending.pop(self.last_query.id, {}) if self.last_query else {}
        self._learn(infos, points)

    def ask(
        self,
        candidates: Locations | None = None,
        *,
        links: "nx.Graph[str] | None" = None,
        agents: Sequence[str] | None = None,
    ) -> Query:
        """A joint batch: one place for each agent, chosen together.

        Queries that are still out count as measured for the variance, so asking again gives other places.

        Args:
            candidates: For each agent the places (k, d) it could measure; by default 512 random ones in the box.
            links: Who hears whom; None means everyone.
            agents: Who takes part; by default all.

        Raises:
            ShapeError: If candidates are not finite (k, d) arrays.
        """
        self.round += 1
        agents = self.agents if agents is None else tuple(agents)
        places = {agent: self._places(agent, candidates) for agent in agents}
        self.refit()
        belief = self.belief
        pending = [point for points in self._pending.values() for point in points.values()]
        if pending:
            belief = belief.condition_on_pending(np.array(pending))
        situation = Situation(
            agents,
            places,
            self._positions,
            self._starts,
            belief,
            links,
            self.domain,
            self.round,
            self.horizon,
            self.seed,
        )
        decision = self._decide(situation)
        self.last_report = decision.report
        means: dict[str, float] = {}
        stds: dict[str, float] = {}
        if decision.points:
            mean, var = belief.posterior(np.array(list(decision.points.values())))
            means = dict(zip(decision.points, mean.tolist(), strict=True))
            stds = dict(zip(decision.points, np.sqrt(var).tolist(), strict=True))
        query = Query(f"q{self.round:05d}", decision.points, means, stds)
        self._pending[query.id] = dict(decision.points)
        self.last_query = query
        return query

    def tell(
        self,
        query: Query | str,
        outcomes: Mapping[str, float] | None = None,
        *,
        locations: Locations | None = None,
        failed: bool = False,
    ) -> None:
        """Learn the outcomes of a query: all of them or some now, the rest later, in any order.

        Args:
            query: The query, or its id.
            outcomes: For each agent that reports its measurement in physical units; NaN or infinite means failed.
            locations: Where it was really measured (d,), if not at the query's point.
            failed: Whether every measurement not in ``outcomes`` failed.

        Raises:
            UnknownQueryError: If no such query is out, or an agent has no open measurement in it.
            ShapeError: If a location is not a finite (d,) array.
        """
        query_id = query.id if isinstance(query, Query) else query
        outcomes = dict(outcomes or {})
        if query_id not in self._pending:
            raise UnknownQueryError(f"query {query_id!r} is not out; waiting for outcomes: {list(self._pending)}")
        points = self._pending[query_id]
        if strangers := [agent for agent in outcomes if agent not in points]:
            raise UnknownQueryError(f"query {query_id!r} waits for {list(points)}, got an outcome of {strangers}")
        places = {agent: self._location(agent, (locations or {}).get(agent, points[agent])) for agent in outcomes}
        self._add(places, outcomes)
        left = {agent: point for agent, point in points.items() if agent not in outcomes}
        if failed:
            self.failures += len(left)
        if left and not failed:
            self._pending[query_id] = left
        else:
            del self._pending[query_id]

    def attach(self, locations: Float[np.ndarray, "n d"], outcomes: Float[np.ndarray, " n"]) -> None:
        """Learn measurements that were never asked for: earlier surveys, other instruments.

        Args:
            locations: Where (n, d), in physical units.
            outcomes: What (n,); entries that are not finite count as failed.
        """
        X, y = np.atleast_2d(np.asarray(locations, dtype=float)), np.asarray(outcomes, dtype=float).reshape(-1)
        if X.shape != (len(y), self.domain.n_dims):
            raise ShapeError(f"got locations {X.shape} and {len(y)} outcomes; wanted ({len(y)}, {self.domain.n_dims})")
        good = np.isfinite(y)
        self.failures += int((~good).sum())
        if good.any():
            self.belief = self.belief.update(X[good], y[good])

    def refit(self) -> None:
        """Fit the belief's hyper-parameters if they are due; ``ask`` does so before it decides."""
        if self.belief.needs_fit:
            self.belief = self.belief.fit(stream(self.seed, "fit", n=self.belief.n_data))

    def recommend(self) -> Recommendation | None:
        """Where the belief's mean is largest, over the places that can be measured; None while there is no data.

        The places are the environment's ``sites()`` where it has them, else 2,048 quasi-random points of the box and
        the locations measured so far.
        """
        if self.belief.n_data == 0:
            return None
        places = self._world.sites() if self._world else None
        if places is None:
            sobol = qmc.Sobol(self.domain.n_dims, rng=stream(self.seed, "recommendation"))
            places = np.concatenate([self.domain.from_unit(sobol.random(2048)), self.belief.X])
        mean, var = self.belief.posterior(places)
        best = int(mean.argmax())
        return Recommendation(places[best].tolist(), float(mean[best]), float(np.sqrt(var[best])))

    def state_dict(self) -> dict[str, Any]:
        """All that evolves, as ``{"json": plain data, "arrays": {name: array}}``; settings are not in it."""
        belief = self.belief.state_dict()
        plain = {
            "version": _STATE_VERSION,
            "round": self.round,
            "failures": self.failures,
            "pending": {key: {a: p.tolist() for a, p in points.items()} for key, points in self._pending.items()},
            "positions": {agent: position.tolist() for agent, position in self._positions.items()},
            "starts": {agent: start.tolist() for agent, start in self._starts.items()},
            "belief": belief["json"],
        }
        return {"json": plain, "arrays": {f"belief/{name}": array for name, array in belief["arrays"].items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> "Team":
        """Go on from a saved state, in place.

        Args:
            state: What ``state_dict`` of a team with the same agents and settings returned.

        Raises:
            StateVersionError: If another version wrote it.
        """
        plain, arrays = state["json"], state["arrays"]
        if plain.get("version") != _STATE_VERSION:
            raise StateVersionError(
                f"team state has version {plain.get('version')}; this swarmbo reads {_STATE_VERSION}"
            )
        self.round, self.failures = plain["round"], plain["failures"]
        self._pending = {
            key: {agent: np.array(point) for agent, point in points.items()} for key, points in plain["pending"].items()
        }
        self._positions = {agent: np.array(position) for agent, position in plain["positions"].items()}
        self._starts = {agent: np.array(start) for agent, start in plain["starts"].items()}
        belief_arrays = {name.removeprefix("belief/"): array for name, array in arrays.items()}
        self.belief = ExactGP.from_state_dict(
            self.belief_settings, self.domain, {"json": plain["belief"], "arrays": belief_arrays}
        )
        return self

    @property
    def _in_world(self) -> World:
        if self._world is None:
            raise ConfigError("this team has no environment to act in; make it with Team.for_env", at="$.environment")
        return self._world

    def _places(self, agent: str, candidates: Locations | None) -> Float[np.ndarray, "k d"]:
        d = self.domain.n_dims
        if candidates is None:
            rng = stream(self.seed, "candidates", agent=agent, round=self.round)
            return self.domain.from_unit(rng.random((_N_DEFAULT_CANDIDATES, d)))
        places = np.asarray(candidates.get(agent, np.empty((0, d))), dtype=float)
        if places.ndim != 2 or places.shape[1] != d or not np.isfinite(places).all():
            raise ShapeError(f"candidates of {agent!r}: got shape {places.shape}; wanted finite (k, {d})")
        return places

    def _location(self, agent: str, location: object) -> Float[np.ndarray, " d"]:
        place = np.asarray(location, dtype=float)
        if place.shape != (self.domain.n_dims,) or not np.isfinite(place).all():
            raise ShapeError(f"location of {agent!r}: got {location!r}; wanted {self.domain.n_dims} finite numbers")
        return place

    def _decide(self, situation: Situation) -> Decision:
        if not isinstance(self.coordination, Exact | MaxSum):
            return self.coordination.decide(situation, self.acquisition)
        problem = self.acquisition.local_problem(situation)
        if problem is None:
            return Decision({}, SolveReport(status="not_needed"))
        graph, tables, links = problem.graph, problem.tables, situation.links
        if self.transport.as_agents:
            solution = solve_with_agents(self.coordination, graph, tables, self.transport.open(graph.agents, links))
        else:
            solution = self.coordination.solve(graph, tables, links)
        points: dict[str, np.ndarray] = {}
        for agent, index in solution.assignment.items():
            point = problem.shortlists[agent][index]
            if solution.value > -np.inf or not any((point == other).all() for other in points.values()):
                points[agent] = point  # where every joint choice has a clash, the later robot of a clash stays
        return Decision(points, solution.report)

    def _learn(self, infos: Mapping[str, Mapping[str, Any]], points: Locations) -> None:
        """Take the measurements out of an environment's infos; agents with a point that do not report have failed."""
        places: dict[str, np.ndarray] = {}
        outcomes: dict[str, float] = {}
        for agent in self.agents:
            location, outcome = World.report(infos.get(agent, {}))
            if location is not None or agent in points:
                places[agent] = self._location(agent, points[agent] if location is None else location)
                outcomes[agent] = outcome
        self._add(places, outcomes)

    def _add(self, places: Locations, outcomes: Mapping[str, float]) -> None:
        """Move the agents to where they measured and learn what they did, in the team's order."""
        good: list[str] = []
        for agent in self.agents:
            if agent in outcomes:
                self._positions[agent] = places[agent]
                self._starts.setdefault(agent, places[agent])
                if np.isfinite(outcomes[agent]):
                    good.append(agent)
                else:
                    self.failures += 1
        routes = Routes(self.agents, self._world.links() if self._world else None)
        reports = {agent: msgspec.msgpack.encode((agent, places[agent].tolist(), outcomes[agent])) for agent in good}
        sharing = (broadcast_traffic(routes, agent, len(report)) for agent, report in reports.items())
        self.last_sharing = sum(sharing, Traffic())
        if good:
            X = np.array([places[agent] for agent in good])
            self.belief = self.belief.update(X, np.array([outcomes[agent] for agent in good]))

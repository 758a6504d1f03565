"""A team with a factor graph: asks for joint points of an additive function, and learns from their outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from pettingzoo import ParallelEnv

from swarmbo.baselines.sobol import sobol_point
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.data import checked_moments
from swarmbo.belief.model import History, JointSituation, Learned, Model, OutcomeMode
from swarmbo.checks import check_links, query_name, whole_number
from swarmbo.deciding import decide_joint, learned_model
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.field_team import FieldTeam
from swarmbo.graph import FactorGraph
from swarmbo.joint_world import JointWorld
from swarmbo.kinds import Given, JointPolicy, Maximiser, OwnJointBelief, joint_kinds, settings_again, to_plain
from swarmbo.logbook import Logbook
from swarmbo.one_at_a_time import OneAtATime, whole_or_not_at_all
from swarmbo.one_shot_world import Measurement, OneShotWorld, Scopes
from swarmbo.outcomes import Outcome, evaluations_of, numbers_of
from swarmbo.problem import Problem
from swarmbo.records import PointQuery, PointRecommendation, SolveReport, Traffic
from swarmbo.rng import stream
from swarmbo.sharing import outcome_traffic
from swarmbo.team_state import STATE_VERSION, require_same, require_version
from swarmbo.transport import Routes

_NEAREST = 1e-9  # sides of the box: a point nearer than this to an earlier one is moved ...
_STEPS = (1e-4, 1e-2)  # ... by a random step between these


class Team(OneAtATime):
    """A team whose agents own the factors and variables of a function, and agree on joint points to evaluate.

    The team maximises the sum of the factors. It learns from outcomes of the sum or of single factors. Decisions repeat
    to the bit for one seed and one number of linear-algebra threads (``swarmbo run`` sets it to one).

    The first ``initial`` points are a scrambled Sobol design, the same for all methods. No point is asked for twice:
    one within 1e-9 of an earlier one, in sides of the box, is moved by a random step of 1e-4 to 1e-2. Where
    outcomes fade, only one that is out is not asked for again. Nor, where outcomes are told by factor, is a factor
    asked for a place of which its outcome is still to come.

    Evaluations that were attached are data: they teach, and one may be the incumbent, but no method failed or gained by
    them. ``team.history`` says which they are.

    Several threads may call a team; one call runs at a time. A call that ends in an exception, be it
    ``KeyboardInterrupt``, changes nothing.

    Args:
        graph: Scopes and owners; None where the structure is not known.
        bounds: (low, high) of every variable, physical.
        belief: What the team thinks of the function: a kind's name, its settings, or a table. So are the next three.
        acquisition: What a point is worth; also an instance of your own subclass of ``JointAcquisition``.
        coordination: How the agents agree on it; also an object of your own, see ``swarmbo.kinds.Maximiser``.
        transport: How messages travel.
        seed: Drives everything random, >= 0.
        rounds: Number of points planned, >= 1; None if unknown.
        outcomes: What is observed: the ``total``, or every factor by itself.
        initial: Points of the initial design, >= 1; evaluations that were attached count.
        variable_owners: Without a graph, the agent that sets each variable; by default one agent for each.

    Raises:
        ConfigError: If bounds do not fit the graph, or a setting is refused.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> team = sb.Team(graph, bounds={name: (0.0, 1.0) for name in "xyz"}, seed=1)
        >>> for _ in range(12):
        ...     query = team.ask()
        ...     x, y, z = (query.point[name] for name in "xyz")
        ...     team.tell(query, -((x - y) ** 2) - (y - 0.3) ** 2 - (y - z) ** 2)
        >>> team.n_data, list(team.recommend().point)
        (12, ['x', 'y', 'z'])
    """

    def __init__(
        self,
        graph: FactorGraph | None,
        bounds: Mapping[str, Sequence[float]],
        *,
        belief: Given | OwnJointBelief = "additive",
        acquisition: Given = "auto",
        coordination: Given | Maximiser | JointPolicy = "admm",
        transport: Given = "in-process",
        seed: int = 0,
        rounds: int | None = None,
        outcomes: OutcomeMode = "total",
        initial: int = 10,
        variable_owners: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        seed, initial = whole_number(seed, 0, "$.seed"), whole_number(initial, 1, "$.initial")
        rounds = None if rounds is None else whole_number(rounds, 1, "$.rounds")
        self.problem = Problem.of(graph, bounds, variable_owners, outcomes)
        self.graph, self.domain = self.problem.graph, self.problem.domain
        kinds = joint_kinds(belief, acquisition, coordination, transport, outcomes)
        self.belief_settings, self.acquisition, self.coordination, self.transport = kinds
        self.seed, self.horizon, self.initial = seed, rounds, initial
        self.outcomes: OutcomeMode = outcomes
        self.agents = self.graph.agents
        self.last_query: PointQuery | None = None
        self.last_report: SolveReport | None = None
        self.last_sharing = Traffic()
        self._log = Logbook.empty(self.problem)
        self._learned: Learned | None = None  # before the last decision: the one part of a model that is not replayed
        self._made: tuple[Logbook, Model] | None = None
        self._acting: str | None = None  # the query that the environment is carrying out
        self._world: JointWorld | None = None

    @staticmethod
    def for_field(agents: Sequence[str], low: Sequence[float], high: Sequence[float], **settings: Any) -> FieldTeam:
        """A team whose agents each measure a place of their own in one field; see ``FieldTeam.for_field``."""
        return FieldTeam.for_field(agents, low, high, **settings)

    @staticmethod
    def for_env(
        env: "ParallelEnv[str, Any, Any]",
        *,
        measurement: Measurement | None = None,
        scopes: Scopes | None = None,
        hold: int = 1,
        **settings: Any,
    ) -> "Team | FieldTeam":
        """A policy for an environment.

        Args:
            env: With a measurement, any whose actions are finite boxes. Else, if it has ``factor_graph()``, its agents
                set the variables of one function, and the policy is a ``Team``; ``swarmbo.joint_world`` says what else
                it must offer. Else every agent measures a place of its own, and the policy is a ``FieldTeam``.
            measurement: The outcome of an agent's factor, from its (observation, reward, info) after a step. The team
                then tunes one action for each agent; ``swarmbo.one_shot_world`` says what an evaluation is.
            scopes: With a measurement: ``{agent: [agents whose actions its factor depends on]}``. Without, the team
                learns from the sum of all agents' measurements, and knows no structure.
            hold: With a measurement: the steps for which an action is held, >= 1.
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport``, ``seed``, ``rounds`` (by default
                the environment's ``max_cycles``; None with a measurement), and for a ``Team`` also ``initial``.

        Raises:
            ConfigError: If the environment is of neither form, or a setting is refused.
        """
        if measurement is None and (scopes is not None or hold != 1):
            raise ConfigError("got none, but scopes or hold; wanted measurement(…)", at="$.measurement")
        if measurement is None and not hasattr(env.unwrapped, "factor_graph"):
            return FieldTeam.for_env(env, **settings)
        world = JointWorld(env) if measurement is None else OneShotWorld(env, measurement, scopes, hold)
        own = {variable: world.variable_owners[variable] for variable in world.bounds}
        settings.setdefault("rounds", world.horizon)
        team = Team(world.graph, world.bounds, outcomes=world.outcomes, variable_owners=own, **settings)
        team._world = world
        return team

    @whole_or_not_at_all
    def begin(self, infos: Mapping[str, Mapping[str, Any]]) -> None:
        """Start an episode: queries that are out are given up, what was learned is kept. ``infos`` bring nothing."""
        self._acting, self._log = None, self._log.without(self._log.open)

    @whole_or_not_at_all
    def act(
        self, observations: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, np.ndarray]:
        """Actions for every live agent: its own variables of the next joint point.

        Args:
            observations: As returned by the environment; only its keys are used.
            infos: Likewise; not used.
        """
        world = self._in_world
        if self._acting is not None:
            if (held := world.held(list(observations))) is not None:
                return held
            self._log = self._log.without([self._acting])  # its outcome was never observed, and now it can't be
        query = self.ask(links=world.links())
        self._acting = query.id
        return world.actions(query.point, list(observations))

    @whole_or_not_at_all
    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Learn from what ``env.step`` returned: ``team.observe(*env.step(actions))``. Only the infos are used,
        unless the team has a measurement of its own.

        Outcomes that are missing, no numbers, not finite or beyond 1e60 count as failed; so do all of an evaluation
        that was made out of bounds.
        """
        if self._acting is None:
            return
        evaluation = self._in_world.evaluated(observations, rewards, terminations, truncations, infos)
        if evaluation is None:
            return  # the action is held
        query_id, self._acting = self._acting, None
        point, outcome = evaluation
        if point is not None and not self.problem.has_point(point):
            point, outcome = None, None
        self.tell(query_id, outcome, point=point, failed=True)

    @overload
    def ask(self, count: None = None, *, links: "nx.Graph[str] | None" = None) -> PointQuery: ...

    @overload
    def ask(self, count: int, *, links: "nx.Graph[str] | None" = None) -> list[PointQuery]: ...

    @whole_or_not_at_all
    def ask(self, count: int | None = None, *, links: "nx.Graph[str] | None" = None) -> PointQuery | list[PointQuery]:
        """The next joint point, or a batch of them.

        The points of a batch are chosen one after the other, each given those before it and all others that are out:
        the variance takes them as evaluated, the mean does not move.

        Args:
            count: How many, >= 1; None for one that is not in a list.
            links: Who hears whom; None means everyone.

        Raises:
            ConfigError: If the count is not at least 1, or links are directed.
        """
        check_links(links)
        if count is None:
            return self._ask(links)
        return [self._ask(links) for _ in range(whole_number(count, 1, "$.count"))]

    def _ask(self, links: "nx.Graph[str] | None") -> PointQuery:
        index = self._log.n_evaluations
        model = None
        if index < self.initial:
            U = sobol_point(stream(self.seed, "initial design"), self.domain.n_dims, index)
            report = SolveReport(status="not_needed")
        else:
            model = self.model
            self._learned = model.learned
            U, report = decide_joint(self._situation(links), model, self.acquisition, self.coordination, self.transport)
        point = self.problem.in_box(self._apart(np.clip(U, 0.0, 1.0)))
        mean, std = (None, None) if model is None else (float(array[0]) for array in model.posterior(point[None]))
        self._log, query_id = self._log.with_query(point, chosen=model is not None)
        self.last_query, self.last_report = PointQuery(query_id, self.problem.named(point), mean, std), report
        return self.last_query

    def _apart(self, U: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The point, or one near it if it was asked for before; where outcomes fade, if it is out.

        Where outcomes are told by factor, also one near it in the variables of a factor whose outcome is still to come.
        """
        fades = isinstance(self.belief_settings, AdditiveGPSettings) and self.belief_settings.time is not None
        everything, log = list(range(len(U))), self._log
        taken = [(everything, self.domain.to_unit(log.out if fades else log.points))]
        for factor, scope in zip(self.graph.factors, self.graph.scopes, strict=True):
            if self.outcomes == "per-factor" and len(places := self.domain.to_unit(log.out_of(factor))):
                taken.append(([self.graph.variables.index(variable) for variable in scope], places))
        rng = stream(self.seed, "apart", asked=log.asked)
        while columns := next((own for own, places in taken if _is_near(U[own], places[:, own])), None):
            length = np.exp(rng.uniform(*np.log(_STEPS)))
            step = length * rng.uniform(-1.0, 1.0, len(columns))
            moved = U.copy()
            moved[columns] = np.where((U[columns] + step < 0.0) | (U[columns] + step > 1.0), -step, step) + U[columns]
            U = moved
        return U

    @whole_or_not_at_all
    def tell(
        self,
        query: PointQuery | str,
        outcome: Outcome = None,
        *,
        failed: bool = False,
        point: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the outcome of a query; outcomes of its factors all at once, or some now and the rest later.

        Args:
            query: The query, or its id. Queries may be told in any order.
            outcome: The total, or a table of factors' outcomes, in physical units. None, NaN, infinite or beyond 1e60
                means failed.
            failed: Whether what is not told failed.
            point: Where it was really evaluated, if not at the query's point.

        Raises:
            UnknownQueryError: If no such query is out, or a factor is unknown or was told before.
            ConfigError: If a total is told to a team that observes factors; a point lacks a variable or is not in
                bounds.
            ShapeError: If an outcome is no number.
        """
        query_id = query_name(query)
        place = None if point is None else self.problem.placed(point)
        total, factors = numbers_of(outcome, self.graph, self.outcomes)
        rest_failed = failed or not isinstance(outcome, Mapping)
        log = self._log
        if total is None:
            self._log = log.with_factors(query_id, factors, rest_failed=rest_failed, point=place)
        else:
            self._log = log.with_total(query_id, total, point=place)
        told = self.problem.named(log.open[query_id].point if place is None else place)
        if total is None and rest_failed:
            factors = dict.fromkeys(log.open[query_id].waits, np.nan) | factors
        routes = Routes(self.agents, self._world.links() if self._world else None)
        self.last_sharing = outcome_traffic(self.graph, self.outcomes, routes, told, total, factors)

    @whole_or_not_at_all
    def attach(self, points: ArrayLike, outcomes: ArrayLike, *, moments: ArrayLike | float | None = None) -> None:
        """Learn evaluations that were never asked for. They count as known, and not as steps of the method.

        Args:
            points: Joint points (t, n), physical, columns in the order of ``graph.variables``.
            outcomes: Totals (t,), or outcomes by factor (t, k) in the order of ``graph.factors``; entries that are not
                finite, or beyond 1e60, count as failed.
            moments: The round of each (t,), or one for all, where the belief has a time axis: the first query is of
                round 1, earlier ones are 0 and below. By default the present round.

        Raises:
            ShapeError: If shapes do not fit.
            ConfigError: If a point is not in bounds.
        """
        X, totals, factors = evaluations_of(points, outcomes, self.graph, self.outcomes)
        rounds = None if moments is None else checked_moments(moments, len(X))
        self._log = self._log.with_evaluations(self.problem.points(X), totals, factors, rounds)

    @whole_or_not_at_all
    def refit(self) -> None:
        """Learn what the history says, if that is due; ``ask`` and ``recommend`` do so by themselves."""
        if self.n_data:
            _ = self.model

    @whole_or_not_at_all
    def recommend(self) -> PointRecommendation | None:
        """The evaluated point that is worth most in expectation, so far; None while there is no data.

        Where factors are observed one by one it is put together from the best of what each part of the graph saw. No
        later decision depends on this being called.
        """
        if not self.n_data:
            return None
        model = self.model.complete or self.model
        point = self.problem.in_box(model.incumbent())
        mean, std = model.posterior(point[None])
        return PointRecommendation(self.problem.named(point), float(mean[0]), float(std[0]))

    @property
    def model(self) -> Model:
        """What the team makes of its history, with points that are out taken as evaluated in the variance."""
        return self._modelled()

    @whole_or_not_at_all
    def _modelled(self) -> Model:
        if self._made is None or self._made[0] is not self._log:
            last = None if self._made is None else self._made[1]
            model = learned_model(self._situation(None), self.belief_settings, self.acquisition, self._learned, last)
            self._made = self._log, model
        return self._made[1]

    @property
    def history(self) -> History:
        """Everything that was evaluated so far."""
        return self._log.history

    @property
    def n_data(self) -> int:
        """Number of evaluated points with at least one outcome."""
        return self._log.history.n_known

    @property
    def failures(self) -> int:
        """Number of outcomes that failed."""
        return self._log.failures

    @property
    def world(self) -> JointWorld | None:
        """The environment that the team acts in."""
        return self._world

    @whole_or_not_at_all
    def state_dict(self) -> dict[str, Any]:
        """All of the team, as ``{"json": plain data, "arrays": {name: array}}``: no pickle."""
        log, arrays = self._log.to_state()
        plain = {
            "version": STATE_VERSION,
            "problem": self.problem.to_plain(),
            "settings": {
                # lists, as they come back
                "belief": msgspec.json.decode(msgspec.json.encode(to_plain(self.belief_settings))),
                "acquisition": to_plain(self.acquisition),
                "coordination": to_plain(self.coordination),
                "transport": to_plain(self.transport),
                "seed": self.seed,
                "rounds": self.horizon,
                "initial": self.initial,
            },
            "log": log,
            "acting": self._acting,
            "learned": msgspec.to_builtins(self._learned),
        }
        return {"json": plain, "arrays": arrays}

    @staticmethod
    def from_state_dict(
        state: Mapping[str, Any],
        env: "ParallelEnv[str, Any, Any] | None" = None,
        *,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
    ) -> "Team | FieldTeam":
        """The team whose ``state_dict`` this is, going on to the bit.

        Args:
            state: The saved state.
            env: The environment that it acts in, if it does.
            belief: The team's, if it is of your own making: a state has its name only, and loads no code.
            acquisition: Likewise.
            coordination: Likewise.

        Raises:
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If a part is of your own making, and was not given again.
        """
        plain = state["json"]
        own = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        if "problem" not in plain:
            return FieldTeam.from_state_dict(state, env, **own)
        require_version(plain)
        problem = Problem.from_plain(plain["problem"])
        known = problem.graph if problem.structure == "known" else None
        settings = settings_again(plain["settings"], own)
        team = Team(
            known, problem.bounds, variable_owners=problem.variable_owners, outcomes=problem.outcomes, **settings
        )
        if env is not None:
            team._world = JointWorld(env)
        return team.load_state_dict(state)

    @whole_or_not_at_all
    def load_state_dict(self, state: Mapping[str, Any]) -> "Team":
        """Go on from a saved state, in place and with this team's own settings of acquisition and coordination.

        Args:
            state: What ``state_dict`` of a team with the same graph, bounds and belief settings returned.

        Raises:
            StateVersionError: If another version of swarmbo, or another team, wrote it.
        """
        plain, own = state["json"], self.state_dict()["json"]
        require_version(plain)
        for key, wanted in own["problem"].items():
            if plain.get("problem", {}).get(key) != wanted:
                raise StateVersionError(f"got the state of a team with other {key}; wanted {wanted}")
        require_same(plain["settings"], own["settings"], ("belief",))
        self._log = self._log.from_state(plain["log"], state["arrays"])
        self._acting, self._learned = plain["acting"], msgspec.convert(plain["learned"], Learned | None)
        self._made = None
        if self._world is not None:
            self._world.begin()
        return self

    def _situation(self, links: "nx.Graph[str] | None") -> JointSituation:
        return JointSituation(
            graph=self.graph,
            domain=self.domain,
            history=self._log.history,
            pending=self._log.pending,
            outcomes=self.outcomes,
            links=links,
            round=self._log.round,
            horizon=self.horizon,
            seed=self.seed,
            initial=self.initial,
            structure=self.problem.structure,
            pending_moments=self._log.pending_moments,
            failed=self._log.history.failed,
        )

    @property
    def _in_world(self) -> JointWorld:
        if self._world is None:
            raise ConfigError("this team has no environment to act in; make it with Team.for_env", at="$.environment")
        return self._world


def _is_near(u: Float[np.ndarray, " a"], places: Float[np.ndarray, "q a"]) -> bool:
    return bool(len(places)) and float(np.abs(places - u).max(axis=1).min()) <= _NEAREST

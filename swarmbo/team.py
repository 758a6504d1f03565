"""Team: it chooses evaluations jointly, learns from their outcomes, and drives a PettingZoo environment."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import networkx as nx
import numpy as np
from msgspec import UNSET
from pettingzoo import ParallelEnv

from swarmbo.baselines.peers import require_packages
from swarmbo.boundary.values import intact, located
from swarmbo.deciding.ask_tell import AskTell
from swarmbo.deciding.near import Safe
from swarmbo.deciding.setup import Given, GivenBelief, GivenCoordination, Setup, refuse_unknown, settings_again
from swarmbo.deciding.team_state import OF_TEAM, STATE_VERSION, atomic, read_state, require_same, warn_of_aim
from swarmbo.deciding.told import quantities_in
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode, Problem
from swarmbo.problem.constraints import Known
from swarmbo.problem.data import News
from swarmbo.problem.no_go import NoGoRegion
from swarmbo.records import Goal, Traffic
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Variable
from swarmbo.transport import Faults
from swarmbo.worlds import FieldWorld, FunctionWorld, Infos, Measurement, OneShotWorld, Scopes, Step, World
from swarmbo.worlds.protocol import require_parallel


class Team(AskTell):
    """A team of agents that agree on the next evaluations, and learn from their outcomes. It maximises.

    ``Team(graph, bounds)`` has agents that own the factors and variables of one function: a query is a joint point, and
    outcomes are sums or values of single factors. ``Team.for_field`` has agents that each measure at their own location
    in one field. ``Team.for_env`` makes the team that fits a PettingZoo environment, and drives it.

    Decisions are bit-identical for one seed and one number of linear-algebra threads (``swarmbo run`` sets it to one).
    With the coordination method ``exact``, the order of candidates matters only among equally good choices. Queries may
    be told in any order and in parts; only the order of their first outcomes can change later decisions. Pending
    queries count as evaluated for the variance, so that further ones explore elsewhere.

    With a function, the first ``initial`` points are a scrambled Sobol design, the same for all methods. With swarmbo's
    own methods, the design continues while all totals, four or more, are equal, unless there are failures, ``limits``
    or a ``start``. No point is queried twice, unless the belief has a time axis or no other point is left. A point
    within 1e-9 of an earlier one, in box widths, is moved by a random step of 1e-4 to 1e-2 box widths. On a grid, it
    takes another value. Every point differs from each pending point by over 0.1 % of some side of the box. With
    outcomes per factor, this holds for the variables of each pending factor. In a tiny region, steps and differences
    may be smaller. Both rules hold for every acquisition, with noise too. To measure a point again, use ``expect``.

    Attached evaluations are data: the team learns from them, and one may be the incumbent, but they do not count as
    steps of a method. ``team.history`` marks them.

    Several threads may call a team; one call runs at a time. A call that ends in an exception, even
    ``KeyboardInterrupt``, changes nothing. Only an interrupt while local beliefs are fused may leave some more data.

    Args:
        graph: Scopes and owners; None if the structure is unknown; or a whole ``Problem``. In a networkx graph, nodes
            without bounds are factors; if all have bounds, each edge is a factor.
        bounds: For every variable (low, high), physical, or its type: ``Real``, ``Integer``, ``Categorical`` or a
            table. A ``Problem`` has them, like ``outcomes`` and ``variable_owners``.
        belief: Name of a belief, its settings, or a table; the next three arguments take the same. Defaults of belief,
            acquisition and coordination: ``additive``, ``auto`` and ``admm`` for a function, ``exact``, ``auto`` (by
            the task) and ``exact`` in a field.
        acquisition: Acquisition; for a function also an instance of your own subclass of ``Acquisition``.
        coordination: Coordination method; also an object of your own, see ``swarmbo.deciding.setup.Maximiser``.
        transport: Transport of messages.
        seed: Seed of everything random, >= 0.
        rounds: Number of queries planned, >= 1; None if unknown.
        outcomes: Observed outcomes of a function: the ``total``, or those of every factor.
        initial: Points of the initial design of a function, >= 1, 10 by default; attached evaluations count.
        variable_owners: Without a graph, the agent that sets each variable; by default one agent for each.
        no_go: No-go regions, added to those of the ``Problem``: ``NoGoBox``, ``NoGoBall`` and ``NoGoPolygon``, or
            their tables. No query and no recommendation lies in one; an agent in a field without other candidates
            skips the round.
        constraints: Limits between variables of a function, added to those of the ``Problem``: ``Linear``,
            ``Separation`` and ``Constraint``, or their tables. Every query and every recommendation keeps them.
        limits: (low, high) of quantities that are measured with each outcome, by name; None where a range has no end.
            ``tell(…, constraints={quantity: value})`` gives their values. A model of each quantity confines queries to
            where its limit probably holds; recommendations are evaluations where it held, if there are any.
        start: Present setting of a function, which is asked first. It is ``"present"`` as the environment reports it,
            ``"largest"``, or a value of each variable: a table, a row of a frame or a list. For a choice without an
            order, its first option counts as the largest. The initial design then has 4 points, this one included.
            Searches also start from simple settings: all variables at their largest, or all equal.
        step_limit: Largest change of each variable from the best setting known (with ``start``): in its unit, in
            positions of ordered choices, or as a share of its axis (``"10%"``). A table has these by variable; ``*``
            stands for any characters. Choices without an order change freely; with 0 they never change.
        safe: Requirement on each setting (with ``start``): with a ``probability`` by the model (default: 0.9), its
            utility is at least a ``share`` (0.95) of the present setting's. A ``loss``, in its unit, replaces the
            share. If no other setting is safe, the best or present one is asked again (``last_report.stayed``).
        **unknown: Refused, with a hint at the right argument.

    Raises:
        ConfigError: If bounds do not fit the graph, a setting is refused, or regions leave nothing to evaluate.
        MissingPackageError: If the coordination method needs a package that is not installed.

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
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], seed=1)
        >>> for query in team.ask(2):
        ...     team.tell(query, {agent: -float(((x - 0.3) ** 2).sum()) for agent, x in query.points.items()})
        >>> team.n_data
        4
    """

    def __init__(
        self,
        graph: "FactorGraph | nx.Graph[Any] | Problem | None",
        bounds: "Mapping[Any, Sequence[float] | Variable | Mapping[str, Any]] | None" = None,
        *,
        belief: "GivenBelief" = UNSET,
        acquisition: "Given" = UNSET,
        coordination: "GivenCoordination" = UNSET,
        transport: "Given" = UNSET,
        seed: int = 0,
        rounds: int | None = None,
        outcomes: OutcomeMode | None = None,
        initial: int | None = None,
        variable_owners: "Mapping[str, str] | None" = None,
        no_go: "Iterable[NoGoRegion | Mapping[str, Any]] | None" = None,
        constraints: "Iterable[Known | Mapping[str, Any]] | None" = None,
        limits: "Mapping[str, Sequence[float | None]] | None" = None,
        start: "str | Mapping[str, Any] | Sequence[Any] | None" = None,
        step_limit: "float | str | Mapping[str, float | str] | None" = None,
        safe: "Safe | Mapping[str, float] | None" = None,
        **unknown: object,
    ) -> None:
        if isinstance(graph, Problem):
            stated = {"bounds": bounds, "outcomes": outcomes, "variable_owners": variable_owners}
            refuse_unknown({name: one for name, one in stated.items() if one is not None} | unknown, without=stated)
            problem = graph
        else:
            refuse_unknown(unknown)
            mode = "total" if outcomes is None else outcomes
            problem = Problem.of(graph, {} if bounds is None else bounds, variable_owners, mode)
        problem = problem if no_go is None else problem.with_no_go(no_go)
        problem = problem if constraints is None else problem.with_constraints(constraints)
        problem = problem if limits is None else problem.with_limits(limits)
        parts = {"belief": belief, "acquisition": acquisition, "coordination": coordination, "transport": transport}
        near: dict[str, Any] = {"start": start, "step_limit": step_limit, "safe": safe}
        setup = Setup.of(problem, **parts, seed=seed, rounds=rounds, initial=initial, **near)
        require_packages(setup.coordination)
        super().__init__(setup)

    @classmethod
    def for_field(
        cls,
        agents: Sequence[str],
        low: Sequence[float],
        high: Sequence[float],
        *,
        aim: Goal | None = None,
        level: float | None = None,
        **settings: Any,
    ) -> "Team":
        """Make a team with agents that may each measure anywhere in a box.

        Args:
            agents: Names of the agents.
            low: Lower bounds (d,) of a location.
            high: Upper bounds (d,).
            aim: Task of the field: its ``peak``, a ``map`` of it, or the set above a ``level``. By default, the level
                if one is stated, else the peak. It determines the acquisition, unless ``acquisition`` is given.
            level: Level of interest, in the unit of the field.
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport``, ``seed``, ``rounds`` and
                ``no_go``, as for a ``Team``.

        Raises:
            ConfigError: If bounds are invalid, the aim is invalid or lacks its level, or a setting is refused.

        Warns:
            AimWarning: If the stated acquisition has another aim.
        """
        team = cls(Problem.of_field(agents, Domain(np.asarray(low), np.asarray(high)), aim, level), **settings)
        warn_of_aim(team.setup, aim)
        return team

    @classmethod
    def for_env(
        cls,
        env: "ParallelEnv[str, Any, Any]",
        *,
        measurement: "Measurement | None" = None,
        scopes: "Scopes | None" = None,
        hold: int = 1,
        **settings: Any,
    ) -> Self:
        """Make a team that acts in an environment; docs/environments/contract.md describes environments.

        Args:
            env: With a measurement, any environment with finite boxes or discrete actions. Otherwise, if it has
                ``factor_graph()``, its agents set the variables of one function. Otherwise every agent measures at its
                own location in one field.
            measurement: Function from an agent's (observation, reward, info) to its factor's outcome. The team then
                tunes one action for each agent; ``swarmbo.worlds.OneShotWorld`` defines an evaluation.
            scopes: With a measurement: ``{agent: [agents whose actions its factor depends on]}``. Without scopes, the
                team learns from the sum of all agents' measurements, without structure.
            hold: With a measurement: number of steps for which an action is held, >= 1.
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport``, ``seed``, ``rounds`` (by default
                the environment's ``max_cycles``; None with a measurement) and ``no_go``; for a function also
                ``initial``, ``constraints`` and ``limits``.

        Raises:
            ConfigError: If the environment fits neither case, a setting is refused, or the acquisition needs a level
                and none is stated.

        Warns:
            AimWarning: If the stated acquisition has another aim than the environment's ``task``.
        """
        require_parallel(env)
        if measurement is None and (scopes is not None or hold != 1):
            raise ConfigError("got scopes or hold without a measurement; wanted measurement(…)", at="$.measurement")
        if measurement is None:
            world = FunctionWorld(env) if hasattr(env.unwrapped, "factor_graph") else FieldWorld(env)
        else:
            world = OneShotWorld(env, measurement, scopes, hold)
        settings.setdefault("rounds", world.horizon)
        team = cls(world.problem, **settings)
        if isinstance(world, FieldWorld):
            team.setup.rule().check_world(team.problem.level)
            warn_of_aim(team.setup, world.stated_task)
        team._world = world
        return team

    @atomic
    def begin(self, infos: Infos) -> None:
        """Start an episode: pending queries are given up, learned data are kept.

        In a field, the infos of ``env.reset`` have each agent's location and measurement. ``act`` calls this before the
        first round; call it yourself before a further episode. Rounds in a field start from 0 again: with a time axis,
        data of an earlier episode keep their round numbers.
        """
        self._acting, self._log = None, self._log.in_new_episode()
        self._learn(self._present_links)
        self._learner, self._unreported = self._learner.begin(), self._unreported.after(self._log)
        self.sent, self.last_sharing, self.sharing_links = {}, Traffic(), None
        news = None if self._world is None else self._world.begin(infos)
        self._learn_news(None, None if news is None else self._received_news(news))

    @atomic
    def act(self, observations: Mapping[str, Any], infos: Infos | None = None) -> dict[str, Any]:
        """Actions for every live agent: values of its variables in the next joint point, or its next location.

        Args:
            observations: Observations of the environment; only their keys are used.
            infos: Infos of ``reset``; used in the first round only.

        Returns:
            Actions. In a field, an agent without candidates stays, or does not measure if the environment allows that.
        """
        world, agents = self._required_world, list(observations)
        if self.round == 0 and not self._learner.positions and infos:
            self.begin(infos)
        if self._acting is not None:
            if (actions := world.continued_actions(agents)) is not None:
                self.last_sharing, self.sharing_links = Traffic(), None
                return actions
            self._log = self._log.without([self._acting])  # its outcome was never observed, and no longer can be
        offers = world.offers(agents)
        query = self._ask(offers)
        self._acting = query.id
        return world.actions(query.point, agents if offers.agents is None else offers.agents, self._learner.positions)

    @atomic
    def follow(self, actions: Mapping[str, Any], infos: Infos | None = None) -> None:
        """Note actions that another policy chose, in place of ``act``; ``observe`` then learns their outcomes.

        No messages are sent for them.

        Args:
            actions: Actions for ``env.step``, in the agents' spaces.
            infos: Infos of ``reset``; used in the first round only.

        Raises:
            ConfigError: If an action is missing or not in its space.
        """
        if self.round == 0 and not self._learner.positions and infos:
            self.begin(infos)
        if self._acting is not None:
            self._log = self._log.without([self._acting])
        self._acting = self._query_at(self._required_world.place_of(actions)).id

    @atomic
    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Infos,
    ) -> None:
        """Learn from the results of ``env.step``: ``team.observe(*env.step(actions))``.

        Only the infos are used, unless the team has a ``measurement``. Quantities with ``limits`` are in
        ``infos[agent]["constraints"]``, by name. Outcomes that are missing, not numbers, not finite or beyond 1e60
        count as failed, and so do those far from the field or out of bounds. All others are learned.
        """
        query = self._log.open.get(self._acting) if self._acting is not None else None
        sent = None if query is None else self.problem.named(query.point)
        news = self._required_world.news(sent, Step(observations, rewards, terminations, truncations, infos))
        if news is None:  # the action is held
            self._learn_news(None, None)
        else:
            acting, self._acting = self._acting, None
            self._learn_news(acting if query is not None else None, self._received_news(news), is_all=True)
            if acting is not None and query is not None and self.problem.ranges:
                self._log = self._log.with_quantities(acting, quantities_in(infos, self.problem))

    def _received_news(self, news: News) -> News:
        if (present := self._present()) is None:
            return news
        return news.of([channel for agent in present for channel in self.graph.factors_owned_by(agent)])

    def _present(self) -> Collection[str] | None:
        """Agents present at the end of a round; None: all."""
        faults, agents = self.transport, self.agents
        return faults.present(agents, self.round, math.inf) if isinstance(faults, Faults) else None

    @classmethod
    @intact(*OF_TEAM)
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        env: "ParallelEnv[str, Any, Any] | None" = None,
        *,
        trust: bool = False,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
    ) -> "Team":
        """Restore the team of a ``state_dict``; it continues bit-identically.

        Args:
            state: Saved state.
            env: Environment of the team, if it has any.
            trust: True to load your own classes that the state names; those that are ``Settings`` are made again with
                their settings.
            belief: Your own belief, if the team had one. Without ``trust``, no code named in the state is loaded.
            acquisition: As ``belief``.
            coordination: As ``belief``.

        Raises:
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If it is damaged or incomplete, or one of your own parts is missing. With ``trust``, if that
                cannot be loaded or the state does not have its settings.
        """
        plain = state["json"]
        require_same(plain, {"version": STATE_VERSION})
        problem = Problem.from_plain(plain["problem"])
        user_parts = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        settings = settings_again(plain["settings"], user_parts, trust)
        world = None
        if env is not None:
            require_parallel(env)
            world = FieldWorld(env) if problem.is_field else FunctionWorld(env)
            problem = world.problem.limited_as(plain["problem"])
            require_same(plain["problem"], problem.to_plain())
        team = cls(problem, **settings)
        team._world = world
        return team.load_state_dict(state)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        env: "ParallelEnv[str, Any, Any] | None" = None,
        *,
        trust: bool = False,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
    ) -> "Team":
        """Load the team that ``save`` wrote; it continues bit-identically.

        Args:
            path: Path of the file.
            env: As for ``from_state_dict``, like all further arguments. To restore a team with a ``measurement``, make
                it with ``for_env`` and call its ``load_state_dict(Team.load(path).state_dict())``.

        Raises:
            OSError: If there is no such file.
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If it is damaged, or not a team, or one of your own parts is missing.

        Example:
            >>> import tempfile, pathlib
            >>> team = Team(None, {"x": (0.0, 1.0)}, seed=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     team.save(pathlib.Path(folder, "team.npz"))
            ...     again = Team.load(pathlib.Path(folder, "team.npz"))
            >>> again.ask() == team.ask()
            True
        """
        own: dict[str, Any] = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        state = read_state(path)
        with located(os.fspath(path)):
            return cls.from_state_dict(state, env, trust=trust, **own)

    @property
    def _required_world(self) -> World:
        if self._world is None:
            raise ConfigError("this team has no environment to act in; make it with Team.for_env", at="$.environment")
        return self._world

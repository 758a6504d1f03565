"""A team: asks what to evaluate together, learns from the outcomes, and drives a PettingZoo environment."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec import UNSET, UnsetType
from pettingzoo import ParallelEnv

from swarmbo.boundary.values import error_text
from swarmbo.deciding.aims import warn_of_aim
from swarmbo.deciding.ask_tell import AskTell
from swarmbo.deciding.setup import (
    Given,
    JointPolicy,
    Maximiser,
    OwnFieldBelief,
    OwnJointBelief,
    Planner,
    Setup,
    Solver,
    refuse_unknown,
    settings_again,
)
from swarmbo.deciding.team_state import read_state, require_same, require_version
from swarmbo.deciding.whole_calls import whole_or_not_at_all
from swarmbo.errors import ConfigError, SwarmboError
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode, Problem
from swarmbo.problem.data import News
from swarmbo.problem.no_go import NoGoRegion
from swarmbo.records import Goal, Traffic
from swarmbo.spaces import Domain
from swarmbo.transport import Faults
from swarmbo.worlds import FieldWorld, FunctionWorld, Infos, Measurement, OneShotWorld, Scopes, Step, World
from swarmbo.worlds.protocol import require_parallel

if TYPE_CHECKING:
    import networkx as nx


class Team(AskTell):
    """A team of agents that agree on what to evaluate next, and learn from what came of it. It maximises.

    ``Team(graph, bounds)`` has agents that own the factors and variables of one function: a query is a joint point, and
    outcomes are of the sum or of single factors. ``Team.for_field`` has agents that each measure a place of their own
    in one field. ``Team.for_env`` makes the one that fits a PettingZoo environment, and drives it.

    Decisions repeat to the bit for one seed and one number of linear-algebra threads (``swarmbo run`` sets it to one),
    in whichever order agents and outcomes come. Queries may be told in any order and in parts; those that are pending
    count as evaluated for the variance, so that a further one looks elsewhere.

    Of a function the first ``initial`` points are a scrambled Sobol design, the same for all methods. No point of it is
    asked for twice: one within 1e-9 of an earlier one, in sides of the box, is moved by a random step of 1e-4 to 1e-2.
    Where outcomes fade, only pending points count. No point lies within 0.001 sides of a pending one, in its widest
    coordinate; where outcomes are told by factor, that holds for the variables of each factor whose outcome is pending.
    This is so for every acquisition, with noise too; to measure a point again, ``expect`` it.

    Evaluations that were attached are data: they teach, and one may be the incumbent, but no method failed or gained by
    them. ``team.history`` says which they are.

    Several threads may call a team; one call runs at a time. A call that ends in an exception, be it
    ``KeyboardInterrupt``, changes nothing; but where agents have beliefs of their own, an interrupt while they talk may
    leave some of them knowing more.

    Args:
        graph: Scopes and owners; None where the structure is not known; or a whole ``Problem``. Of a
            networkx graph nodes without bounds are factors; if all have some, each edge is.
        bounds: (low, high) of every variable, physical; part of a ``Problem``. So are ``outcomes`` and
            ``variable_owners``.
        belief: What the team thinks: a kind's name, its settings, or a table. So are the next three. Each by default
            what suits the problem: ``additive``, ``auto`` and ``admm`` of a function, ``exact``, ``auto`` (by what the
            field is watched for) and ``exact`` in a field.
        acquisition: What a query is worth; of a function also an instance of your own subclass of ``Acquisition``.
        coordination: How the agents agree on it; also an object of your own, see ``swarmbo.deciding.setup.Maximiser``.
        transport: How messages travel.
        seed: Drives everything random, >= 0.
        rounds: Number of queries planned, >= 1; None if unknown.
        outcomes: What is observed of a function: the ``total``, or every factor by itself.
        initial: Points of the initial design of a function, >= 1, 10 by default; evaluations that were attached count.
        variable_owners: Without a graph, the agent that sets each variable; by default one agent for each.
        no_go: Regions that must not be asked, beside those of the ``Problem``: ``NoGoBox``, ``NoGoBall`` and
            ``NoGoPolygon``, or tables of such. No query and no recommendation lies in one; who has nowhere else to go
            in a field sits the round out.
        **unknown: Refused, with what does the same.

    Raises:
        ConfigError: If bounds do not fit the graph, a setting is refused, or regions leave nothing to ask for.

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
        bounds: "Mapping[Any, Sequence[float]] | None" = None,
        *,
        belief: "Given | OwnFieldBelief | OwnJointBelief | UnsetType" = UNSET,
        acquisition: "Given | UnsetType" = UNSET,
        coordination: "Given | Maximiser | JointPolicy | Solver | Planner | UnsetType" = UNSET,
        transport: "Given | UnsetType" = UNSET,
        seed: int = 0,
        rounds: int | None = None,
        outcomes: OutcomeMode | None = None,
        initial: int | None = None,
        variable_owners: "Mapping[str, str] | None" = None,
        no_go: "Iterable[NoGoRegion | Mapping[str, Any]] | None" = None,
        **unknown: object,
    ) -> None:
        refuse_unknown(unknown)
        if not isinstance(graph, Problem):
            told = "total" if outcomes is None else outcomes
            problem = Problem.of(graph, {} if bounds is None else bounds, variable_owners, told)
        else:
            problem = graph
        if problem is graph and not (bounds is None and outcomes is None and variable_owners is None):
            raise ConfigError("got bounds, outcomes or owners; wanted them in the Problem alone", at="$.graph")
        problem = problem if no_go is None else problem.with_no_go(no_go)
        parts = {"belief": belief, "acquisition": acquisition, "coordination": coordination, "transport": transport}
        super().__init__(Setup.of(problem, **parts, seed=seed, rounds=rounds, initial=initial))

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
        """A team whose agents may each measure anywhere in a box.

        Args:
            agents: Their names.
            low: Lower bounds (d,) of a location.
            high: Upper bounds (d,).
            aim: What the field is watched for: its ``peak``, a ``map`` of it, or where it exceeds a ``level``. By
                default the level where one is stated, else the peak. It chooses what a query is worth, unless
                ``acquisition`` does.
            level: That is watched, in the unit of the field.
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport``, ``seed``, ``rounds`` and
                ``no_go``, as of a ``Team``.

        Raises:
            ConfigError: If bounds are none, the aim is none or lacks its level, or a setting is refused.

        Warns:
            AimWarning: If the acquisition that is stated looks for something else.
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
        """A policy for an environment; docs/environments/contract.md says what one may offer.

        Args:
            env: With a measurement, any whose actions are finite boxes. Else, if it has ``factor_graph()``, its agents
                set the variables of one function. Else every agent measures a place of its own in one field.
            measurement: The outcome of an agent's factor, from its (observation, reward, info) after a step. The team
                then tunes one action for each agent; ``swarmbo.worlds.OneShotWorld`` says what an evaluation is.
            scopes: With a measurement: ``{agent: [agents whose actions its factor depends on]}``. Without, the team
                learns from the sum of all agents' measurements, and knows no structure.
            hold: With a measurement: the steps for which an action is held, >= 1.
            **settings: ``belief``, ``acquisition``, ``coordination``, ``transport``, ``seed``, ``rounds`` (by default
                the environment's ``max_cycles``; None with a measurement) and ``no_go``; of a function also
                ``initial``.

        Raises:
            ConfigError: If the environment is of neither form, a setting is refused, or the acquisition needs a level
                and nobody states one.

        Warns:
            AimWarning: If the acquisition that is stated looks for something else than the environment's ``task``.
        """
        require_parallel(env)
        if measurement is None and (scopes is not None or hold != 1):
            raise ConfigError("got none, but scopes or hold; wanted measurement(…)", at="$.measurement")
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

    @whole_or_not_at_all
    def begin(self, infos: Infos) -> None:
        """Start an episode: pending queries are given up, what was learned is kept.

        In a field agents say in the infos of ``env.reset`` where they are and what they measured there. ``act`` calls
        this before the first round. Call it yourself before a further episode. Rounds in a field are counted from 0
        again: where data fade, those of an earlier episode count as of the same round of this one.
        """
        self._acting, self._log = None, self._log.in_new_episode()
        self._learn(self._present_links)
        self._learner, self._since = self._learner.begin(), self._since.after(self._log)
        self.sent, self.last_sharing, self.sharing_links = {}, Traffic(), None
        news = None if self._world is None else self._world.begin(infos)
        self._take(None, None if news is None else self._heard(news))

    @whole_or_not_at_all
    def act(self, observations: Mapping[str, Any], infos: Infos | None = None) -> dict[str, np.ndarray]:
        """Actions for every live agent: its own variables of the next joint point, or where it measures next.

        Args:
            observations: As returned by the environment; only its keys are used.
            infos: As ``observations``; used in the first round only, where they are those of ``reset``.

        Returns:
            In a field, an agent with nowhere to go is told to stay where it is, or to do without a measurement where it
            can.
        """
        world, agents = self._in_world, list(observations)
        if self.round == 0 and not self._learner.positions and infos:
            self.begin(infos)
        if self._acting is not None:
            if (held := world.held(agents)) is not None:
                self.last_sharing, self.sharing_links = Traffic(), None
                return held
            self._log = self._log.without([self._acting])  # its outcome was never observed, and now it can't be
        offers = world.offers(agents)
        query = self._ask(offers)
        self._acting = query.id
        actors = agents if offers.agents is None else offers.agents
        return world.actions(query.point, actors, self._learner.positions)

    @whole_or_not_at_all
    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Infos,
    ) -> None:
        """Learn from what ``env.step`` returned: ``team.observe(*env.step(actions))``. Only the infos are used,
        unless the team has a measurement of its own.

        Outcomes that are missing, no numbers, not finite or beyond 1e60 count as failed, and so do those that were
        made nowhere near the field, or out of bounds; the others are learned from.
        """
        query = self._log.open.get(self._acting) if self._acting is not None else None
        sent = None if query is None else self.problem.named(query.point)
        step = Step(observations, rewards, terminations, truncations, infos)
        news = self._in_world.news(sent, step)
        if news is None:  # the action is held
            self._take(None, None)
        else:
            acting, self._acting = self._acting, None
            self._take(acting if query is not None else None, self._heard(news), is_all=True)

    def _heard(self, news: News) -> News:
        """What anybody hears of a round's news: the channels of agents that are there."""
        if (present := self._present()) is None:
            return news
        return news.of([channel for agent in present for channel in self.graph.factors_owned_by(agent)])

    def _present(self) -> Collection[str] | None:
        """Who is neither dead nor yet to join when a round ends; None: all are there."""
        if not isinstance(self.transport, Faults):
            return None
        return self.transport.present(self.agents, self.round, math.inf)

    @classmethod
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
        """The team whose ``state_dict`` this is, going on to the bit.

        Args:
            state: The saved state.
            env: The environment that it acts in, if it does.
            trust: Whether classes of your own that the state names may be loaded; those that are ``Settings`` are made
                again with their settings.
            belief: The team's, if it is of your own making: without ``trust`` a state loads no code.
            acquisition: As ``belief``.
            coordination: As ``belief``.

        Raises:
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If a part is of your own making and was not given again; with ``trust``, if it cannot be loaded
                or the state does not have its settings.
        """
        plain = state["json"]
        require_version(plain)
        problem = Problem.from_plain(plain["problem"])
        own = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        settings = settings_again(plain["settings"], own, trust)
        if env is not None:
            require_parallel(env)
            world = FieldWorld(env) if problem.is_field else FunctionWorld(env)
            limited = world.problem.with_no_go(plain["problem"].get("no_go", ()))
            require_same(plain["problem"], limited.to_plain())
            team = cls(limited, **settings)
            team._world = world
        else:
            team = cls(problem, **settings)
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
        """The team that ``save`` wrote, going on to the bit.

        Args:
            path: Of the file.
            env: As of ``from_state_dict``, and so are all that follow. A team made with a ``measurement`` is made again
                by ``for_env`` and then told ``load_state_dict(Team.load(path).state_dict())``.
            trust: Whether classes of your own that the file names may be loaded.
            belief: The team's, if it is of your own making.
            acquisition: As ``belief``.
            coordination: As ``belief``.

        Raises:
            OSError: If there is no such file.
            StateVersionError: If another version of swarmbo, or a team for another environment, wrote it.
            ConfigError: If it is damaged, or no team, or a part is of your own making and was not given again.

        Example:
            >>> import tempfile, pathlib
            >>> team = Team(None, {"x": (0.0, 1.0)}, seed=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     team.save(pathlib.Path(folder, "team.npz"))
            ...     again = Team.load(pathlib.Path(folder, "team.npz"))
            >>> again.ask() == team.ask()
            True
        """
        state = read_state(path)
        own: dict[str, Any] = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        try:
            return cls.from_state_dict(state, env, trust=trust, **own)
        except SwarmboError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{path}: is no whole team ({error_text(error)}); wanted a file that team.save wrote"
            ) from error

    @property
    def _in_world(self) -> World:
        if self._world is None:
            raise ConfigError("this team has no environment to act in; make it with Team.for_env", at="$.environment")
        return self._world

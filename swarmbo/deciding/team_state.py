"""State of a team: properties, saving and loading; calls either complete or have no effect."""

import copy
import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import msgspec
import numpy as np

from swarmbo.acquisition import Auto
from swarmbo.belief import ExactGP
from swarmbo.belief.fusion import FusedBelief
from swarmbo.belief.model import Model
from swarmbo.boundary.files import read_arrays, write_arrays
from swarmbo.boundary.values import counted, html_table, intact, short
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.places import ignores_beliefs
from swarmbo.deciding.reports import Unreported
from swarmbo.deciding.setup import Setup, to_plain
from swarmbo.errors import AimWarning, StateVersionError
from swarmbo.problem.data import Dataset
from swarmbo.records import Goal, LinkReport, Query, SolveReport, Traffic
from swarmbo.registry import name_of
from swarmbo.worlds import World

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="AtomicObject")


class AtomicObject:
    """Base of objects whose attributes are replaced, never changed in place: a failed call restores only references.

    A copy, by ``copy.deepcopy`` or a pickle, has its own lock, and is made between two calls, since a reading method
    may compute and cache something.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes that other objects hold and change, too; a failed call does not restore them. A pickle does not copy
    them first, so objects that are pickled together still share them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """State to pickle: a copy, as pickling goes on after the lock is released. Shared attributes are not copied."""
        with self.lock:
            state = self._state_without_lock()
            shared = {id(state[name]): state[name] for name in self.shared if name in state}
            return copy.deepcopy(state, shared)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self.lock:
            memo[id(self)] = twin = type(self).__new__(type(self))
            twin.__setstate__(copy.deepcopy(self._state_without_lock(), memo))
            return twin

    def _state_without_lock(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "lock": threading.RLock()}


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a method alone, and restore all attributes if it ends in an exception.

    This includes ``KeyboardInterrupt``: attributes are restored in one assignment, which cannot be interrupted.
    """

    @wraps(method)
    def called(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            before = self.__dict__.copy()
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                self.__dict__ = before
                raise

    return called


STATE_VERSION = 10  # 10: models of similar evidence by name
OF_TEAM = "what `state_dict` or `save` of a team wrote", "$.state"
_PLAIN = "team.json"  # entry of a file with the plain data, as bytes of JSON


class TeamState(AtomicObject):
    """Base of teams: their state.

    Attributes:
        setup: Setup of the team.
        problem: Problem of the team.
        agents: Names of the agents.
        graph: Scopes and owners; in a field, the scope of an agent is its location.
        domain: Box of joint points; in a field, box of locations.
        outcomes: Kind of observed outcomes.
        belief_settings: Settings of the belief.
        acquisition: Acquisition settings.
        coordination: Coordination method.
        transport: Transport of the agents' messages.
        seed: Seed of everything random.
        horizon: Number of queries planned; None if unknown.
        initial: Number of points of the initial design; 0 in a field.
        last_query: Last query.
        last_report: Report of the last agreement.
        sent: Traffic of the last decision by purpose, as if each agent decided by messages.
        last_sharing: Part of ``sent`` for reports of data and reachable locations; empty while an action is held.
        sharing_links: Report of faulty links in the last fusion of local beliefs; else None.
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
        self.sent: dict[str, Traffic] = {}
        self.last_sharing = Traffic()
        self.sharing_links: LinkReport | None = None
        self._log = Logbook.empty(problem)
        self._learner = FieldLearner.empty(setup) if problem.is_field else FunctionLearner(setup)
        self._unreported = Unreported()
        self._acting: str | None = None  # query that the environment executes
        self._world: World | None = None
        self._first_fit: tuple[FieldLearner, FieldLearner] | None = None  # learner before and after it, for `belief`

    @property
    def belief(self) -> ExactGP | FusedBelief:
        """Belief of a team in a field; for a function, use ``model.belief``.

        It learns a query when all its outcomes are told. A partly told query, and data told after it, are learned
        before the next decision or recommendation. Access to the belief fits attached data, and changes no decision.
        Local beliefs are fused when agents learn.
        """
        learner = self._learner
        if not isinstance(learner, FieldLearner):
            raise AttributeError("a team that optimises a function has its belief in the model: team.model.belief")
        seen = learner.team_belief.belief
        if getattr(seen, "is_fitted", True) or not self._log.history.attached.any():
            return seen
        if self._first_fit is None or self._first_fit[0] is not learner:
            self._first_fit = learner, learner.fitted(self._log)
        return self._first_fit[1].team_belief.belief

    @property
    @atomic
    def model(self) -> Model:
        """Model of the history of a function; pending points count as evaluated in the variance."""
        if not isinstance(self._learner, FunctionLearner):
            raise AttributeError("a team in a field has no model of a sum; its belief is team.belief")
        self._learner, model = self._learner.modelled(self._log)
        return model

    @property
    def round(self) -> int:
        """Number of queries; in a field, of this episode."""
        return self._log.round - 1

    @property
    def history(self) -> Dataset:
        """All evaluations so far."""
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
    def pending(self) -> dict[str, dict[str, Any]]:
        """Points of queries that wait for outcomes (actual ones where told), by id, in the order of requests."""
        return {name: self.problem.named(query.place) for name, query in self._log.open.items()}

    @property
    def world(self) -> World | None:
        """Environment of the team; None for a team with ask and tell."""
        return self._world

    @atomic
    def state_dict(self) -> dict[str, Any]:
        """State of the team as ``{"json": plain data, "arrays": {name: array}}``, without pickle."""
        log, rows = self._log.to_state()
        learned, arrays = self._learner.to_state()
        since = bytearray(msgspec.msgpack.encode(self._unreported))
        plain = {"version": STATE_VERSION, "problem": self.problem.to_plain(), "settings": self.setup.to_plain()}
        plain |= {"log": log, "acting": self._acting, **learned}
        return {"json": plain, "arrays": rows | arrays | {"since": np.frombuffer(since, dtype=np.uint8)}}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the team to one file, completely or not at all; ``Team.load`` continues bit-identically.

        The file has numbers and JSON, no pickle; ``numpy.load`` reads it. It contains the names of your own parts and,
        if they are ``Settings``, their settings. If several processes write one path, the last complete file remains.

        Args:
            path: Path of the file; an existing one is replaced.

        Raises:
            OSError: If it cannot be written.
        """
        write_state(path, self.state_dict())

    @atomic
    @intact(*OF_TEAM)
    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Continue from a saved state, in place and with this team's own settings of acquisition and coordination.

        Reports of the last decision are not kept, and an action that is held (``hold``) is given up.

        Args:
            state: Result of ``state_dict`` of a team with the same problem and belief settings.

        Raises:
            StateVersionError: If another version of swarmbo, or another team, wrote it.
            ConfigError: If it is damaged or incomplete.
        """
        plain, arrays, own = state["json"], state["arrays"], self.setup.to_plain()
        require_same(plain, {"version": STATE_VERSION})
        require_same(plain["problem"], self.problem.to_plain())
        require_same(plain["settings"], {"belief": own["belief"]})
        self._log, self._acting = self._log.from_state(plain["log"], arrays), plain["acting"]
        self._learner = self._learner.from_state(plain, arrays)
        self._unreported = msgspec.msgpack.decode(arrays["since"].tobytes(), type=Unreported)
        self.last_query, self.last_report, self.sent = None, None, {}
        self.last_sharing, self.sharing_links = Traffic(), None
        if self._world is not None:
            self._world.begin({})
        return self

    def __repr__(self) -> str:
        """Team and its progress in one line."""
        parts = [f"{label} {text}" if label not in ("data", "best outcome") else text for label, text in _rows_of(self)]
        return f"<{_title_of(self)}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Table of the team and its progress, for notebooks."""
        return html_table(_title_of(self), _rows_of(self))


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file that ``numpy.load`` reads, completely or not at all."""
    text = np.frombuffer(json.dumps(state["json"]).encode(), dtype=np.uint8)
    write_arrays(Path(path), {**{name: np.asarray(array) for name, array in state["arrays"].items()}, _PLAIN: text})


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state."""
    with intact("a file that team.save wrote", os.fspath(path)):
        arrays = read_arrays(Path(path))
        return {"json": json.loads(arrays.pop(_PLAIN).tobytes()), "arrays": arrays}


def require_same(plain: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse the state of another version, or of a team that differs in a fixed part."""
    for key in own:
        if plain[key] != own[key]:
            raise StateVersionError(f"got a state with other {key}, {plain[key]}; wanted a team's, {own[key]}")


def _title_of(team: TeamState) -> str:
    problem, n_agents = team.problem, counted(len(team.agents), "agent")
    if problem.is_field:
        return f"Team of {n_agents} in a field with {counted(problem.box.n_dims, 'coordinate')}"
    known = counted(len(problem.channels), "factor") if problem.structure == "known" else "unknown structure"
    observed = "outcomes by factor" if problem.outcomes == "per-factor" else "totals"
    return f"Team of {n_agents} for a function of {counted(problem.domain.n_dims, 'variable')}, {known}, {observed}"


def _rows_of(team: TeamState) -> list[tuple[str, str]]:
    """Rows of the table of a team: progress, parts, and the best outcome so far; nothing is computed for it."""
    kinds = ("belief", "acquisition", "coordination", "transport")
    parts = (team.belief_settings, team.acquisition, team.coordination, team.transport)
    planned = "" if team.horizon is None else f" of {team.horizon}"
    noun = "measurement" if team.problem.is_field else "evaluation"
    progress = f"{counted(team.n_data, noun)}, {team.failures} failed, {len(team.pending)} pending"
    rows = [("data", progress), ("round", f"{team.round}{planned}")]
    named = {kind: str(to_plain(part)["kind"]) for kind, part in zip(kinds, parts, strict=True)}
    rows += (named | {"acquisition": acquisition_in_words(team.setup)}).items()
    rows.append(("seed", str(team.seed)))
    return rows + _best(team)


def _best(team: TeamState) -> list[tuple[str, str]]:
    data, problem = team.history, team.problem
    values = data.factors if problem.is_field else data.sums[:, None]
    if not np.isfinite(values).any():
        return []
    row, channel = np.unravel_index(int(np.nanargmax(values)), values.shape)
    point = problem.named(data.X[row])
    if problem.is_field:
        place = problem.places_of(point)[problem.channels[channel]]
        where = f"({', '.join(f'{x:.6g}' for x in place)})"
    else:
        shown = [(name, f"{x:.6g}" if isinstance(x, float) else short(x)) for name, x in list(point.items())[:6]]
        where = ", ".join(f"{name} = {value}" for name, value in shown)
        where += f", … {len(point)} variables" if len(point) > 6 else ""
    return [("best outcome", f"{values[row, channel]:.6g} at {where}")]


_IN_WORDS: dict[Goal, str] = {"peak": "the peak", "map": "a map", "level": "a level"}


def acquisition_in_words(setup: Setup) -> str:
    """Kind of a team's acquisition, with another kind that it chooses: ``targeted-variance (auto: for a map)``."""
    stated, problem = str(to_plain(setup.acquisition)["kind"]), setup.problem
    if not setup.chooses:
        return stated
    priced = ", as agents may decline" if problem.priced and problem.aim != "peak" else ""
    return f"{name_of(setup.rule())} ({stated}: for {_IN_WORDS[problem.aim]}{priced})"


def warn_of_aim(setup: Setup, stated: Goal | None) -> None:
    """Warn if an acquisition has another aim than the stated task; a method without an aim gives no warning."""
    sought = setup.rule().aim(setup.problem.level)
    if stated is None or sought in (None, stated) or ignores_beliefs(setup.coordination):
        return
    wanted = "a world whose attribute `task` states that task"
    if not setup.chooses:
        wanted = f"{name_of(Auto().in_field(stated, priced=setup.problem.priced))!r}, which is taken if it is left out"
    got = f"got {to_plain(setup.acquisition)['kind']!r}, which looks for {_IN_WORDS[sought]}"
    got = f"$.acquisition.kind: {got}, where the task is {_IN_WORDS[stated]}"
    warnings.warn(f"{got}; wanted {wanted}", AimWarning, stacklevel=3)

"""States that a run keeps: the record of its world for figures and metrics, and the checkpoint of team and world.

Arrays of a checkpoint are in a file named by the round. Its JSON names that file and is renamed into place after it;
older arrays are deleted last. So whenever a run is killed, the JSON fits the arrays it names.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from swarmbo.belief.model import Learned
from swarmbo.boundary.coordinates import Coordinates
from swarmbo.boundary.files import digest_of_arrays, read_arrays, read_regular
from swarmbo.boundary.values import exact
from swarmbo.errors import ConfigError, RunFolderError, StateVersionError, typed
from swarmbo.graph import FactorGraph
from swarmbo.graph.groups import graph_of_groups
from swarmbo.problem.coding import coding_of
from swarmbo.records import TRUE_MAXIMUM, Goal, GroundTruth, Labels, RoundRecord
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import CHECKPOINTS
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain, Variable
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, FunctionWorld, Infos, Offers, Report

_REPAIR = "delete world.json and summary.json there, and `swarmbo resume {}` writes them again"
STATE_VERSION = 1
State = dict[str, Any]  # {"json": plain data, "arrays": {name: array}}


class WorldRecord(msgspec.Struct, frozen=True):
    """``world.json``. ``world.npz`` holds ``points`` (m, d) and ``values`` (m,) of the ground truth, if there is one.

    For a changing field it also holds ``frames`` (rounds + 1, m), ``maxima`` (rounds + 1,) and ``argmaxes`` (rounds +
    1, d); ``values``, ``maximum`` and ``argmax`` are then those of round 0. ``starts`` are the locations measured at
    reset. ``variables`` names the coordinates of a joint point, none in a field; ``types`` is empty if all are real
    numbers on linear axes. ``scopes`` is None if hidden. ``arrays`` is the digest of ``world.npz``. ``coordinates`` are
    those of the input, if they are not the map's.
    """

    id: str
    name: str
    unit: str
    axis_unit: str
    low: list[float]
    high: list[float]
    agents: list[str]
    starts: dict[str, list[float]]
    maximum: float | None = None
    argmax: list[float] | None = None
    variables: list[str] = []
    variable_owners: dict[str, str] = {}
    types: list[Variable] = []
    scopes: dict[str, list[str]] | None = None
    owners: dict[str, str] | None = None
    standpoints: dict[str, list[float]] = {}
    goal: Goal = "peak"
    level: float | None = None
    arrays: str = ""
    maximum_is: str = TRUE_MAXIMUM
    no_go: list[list[list[list[float]]]] = []
    bases: dict[str, list[float]] = {}
    coordinates: Coordinates | None = None

    @property
    def domain(self) -> Domain:
        """Box of locations, or of joint points in codes."""
        return MixedDomain.of(self.types) if self.types else Domain(np.array(self.low), np.array(self.high))

    def named(self, location: Sequence[float]) -> dict[str, Any]:
        """Values of the variables of a joint point."""
        codes = dict(zip(self.variables, location, strict=False))
        if not self.types:
            return dict(codes)
        pairs = zip(codes.items(), self.types, strict=True)
        return {name: type_.value(code) if type_.axis.has(code) else None for (name, code), type_ in pairs}


def write_world(
    folder: RunFolder, scenario: Scenario, team: Team, infos: Infos, truth: GroundTruth | None, labels: Labels
) -> None:
    """Write the world, or check that it equals the world already written."""
    identifier: str = scenario.environment["id"]
    domain = team.world.domain if isinstance(team.world, FunctionWorld) else team.domain
    field = team.world if isinstance(team.world, FieldWorld) else None
    offers = Offers() if team.world is None else team.world.offers()
    starts = {agent: Report.of(info, domain if field else None).place for agent, info in infos.items()}
    arrays = _truth_arrays(truth, scenario.rounds)
    record = WorldRecord(
        id=identifier,
        name=labels.name or (identifier if truth is None else ""),
        unit=labels.unit,
        axis_unit=labels.axis_unit,
        low=domain.low.tolist(),
        high=domain.high.tolist(),
        agents=list(team.agents),
        starts={agent: place.tolist() for agent, place in starts.items() if place is not None},
        standpoints={agent: place.tolist() for agent, place in offers.standpoints.items()},
        no_go=[[ring.tolist() for ring in rings] for rings in field.no_go()] if field else [],
        bases={agent: place.tolist() for agent, place in field.bases().items()} if field else {},
        coordinates=labels.coordinates,
        goal=team.problem.aim,
        level=team.problem.level,
        arrays=digest_of_arrays(arrays),
        **_joint_point_fields(team),
    )
    if truth is not None:
        names = ("goal", "level", "maximum", "argmax", "maximum_is")
        record = msgspec.structs.replace(record, **exact({name: getattr(truth, name) for name in names}))
    try:  # it could not be read at the end of the run
        read = msgspec.json.decode(msgspec.json.encode(record), type=WorldRecord)
        if changed := [name for name in record.__struct_fields__ if getattr(read, name) != getattr(record, name)]:
            raise msgspec.ValidationError(f"got {changed[0]} {getattr(record, changed[0])}; wanted a finite number")
    except msgspec.ValidationError as error:
        raise ConfigError(f"labels or ground_truth(): {error} (NaN counts as null)", at="$.environment") from None
    if not (folder.path / "world.json").is_file():
        folder.write_arrays("world.npz", arrays)
        folder.write_json("world.json", record)
        return
    digest, written = digest_of_arrays(read_truth(folder)), read_world(folder)
    # a new title does not change the world, and the aim follows from the scenario
    not_compared = ("name", "unit", "axis_unit", "maximum_is", "goal", "level")
    written = msgspec.structs.replace(written, arrays=digest, **{name: getattr(record, name) for name in not_compared})
    if written != record:
        got = f"{folder.path}: the environment of this run has changed: its data or its code"
        raise RunFolderError(f"{got}; put it back, or start the run again in another folder")


def _truth_arrays(truth: GroundTruth | None, rounds: int) -> dict[str, np.ndarray]:
    """Arrays of ``world.npz``."""
    if truth is None:
        return {}
    arrays = {"points": truth.points, "values": truth.values}
    if truth.at_round is not None:
        by_round = [truth.at(round_number) for round_number in range(rounds + 1)]
        names = {"frames": "values", "maxima": "maximum", "argmaxes": "argmax"}
        arrays |= {name: np.array([getattr(each, attribute) for each in by_round]) for name, attribute in names.items()}
    return arrays


def read_world(folder: RunFolder) -> WorldRecord:
    """Read the world of a run."""
    with folder.reading("world.json", _REPAIR.format(typed(folder.path))):
        return msgspec.json.decode(folder.read_sealed("world.json"), type=WorldRecord)


def read_truth(folder: RunFolder) -> dict[str, np.ndarray]:
    """Read the arrays of a run's world; empty without a ground truth."""
    with folder.reading("world.npz", _REPAIR.format(typed(folder.path))):
        arrays = read_arrays(folder.path / "world.npz")
        if digest_of_arrays(arrays) != read_world(folder).arrays:
            raise ValueError("it was changed or damaged: its digest does not fit")
        return arrays


def _joint_point_fields(team: Team) -> dict[str, Any]:
    """Fields of a world's record with names, owners and types of the coordinates of joint points; none in a field."""
    world, graph = team.world, team.graph
    if not isinstance(world, FunctionWorld):
        return {}
    fields: dict[str, Any] = {"variables": list(world.variables), "variable_owners": dict(world.variable_owners)}
    fields["types"] = list(world.types.values()) if world.is_typed else []
    if world.graph is not None:
        fields["scopes"] = {factor: list(graph.scope(factor)) for factor in graph.factors}
        fields["owners"] = {factor: graph.owner(factor) for factor in graph.factors}
    return fields


class ScopeInUse(msgspec.Struct, frozen=True):
    """A scope that a team learned or drew, and its share of the fitted prior variance of the sum, 0 to 1."""

    variables: list[str]
    share: float


def scopes_in_use(record: RoundRecord, world: WorldRecord) -> list[ScopeInUse]:
    """Scopes learned by the belief after a round; empty if they are the team's stated scopes or a single scope."""
    if not world.variables or record.hyperparameters is None:
        return []
    learned = msgspec.convert(record.hyperparameters, Learned)
    scopes = _scopes_of(learned, world)
    outputscales = learned.hyperparameters.in_one_unit().outputscales
    # no scopes, or a user's acquisition with other factors
    if len(scopes) != len(outputscales):
        return []
    return [ScopeInUse(list(scope), var / sum(outputscales)) for scope, var in zip(scopes, outputscales, strict=True)]


def graph_in_use(record: RoundRecord, world: WorldRecord) -> FactorGraph | None:
    """Factor graph of ``scopes_in_use`` with the world's owners; None if there are none."""
    scopes = scopes_in_use(record, world)
    return graph_of_groups(_one_factor_graph(world), [scope.variables for scope in scopes]) if scopes else None


def _one_factor_graph(world: WorldRecord) -> FactorGraph:
    """Graph of one factor over all variables of the world's factors, which are the variables of the team's graph."""
    inside = {variable for scope in (world.scopes or {}).values() for variable in scope}
    variables = tuple(variable for variable in world.variables if world.scopes is None or variable in inside)
    owners = tuple(world.variable_owners[variable] for variable in variables)
    return FactorGraph(("+".join(["sum", *variables]),), (variables,), owners[:1], variables, owners)


def _scopes_of(learned: Learned, world: WorldRecord) -> Sequence[Sequence[str]]:
    graph, types = _one_factor_graph(world), dict(zip(world.variables, world.types, strict=False))
    coding = coding_of(graph, MixedDomain.of([types[variable] for variable in graph.variables])) if types else None
    coded, scopes = graph if coding is None else coding.inner, learned.scopes
    if learned.structure is not None:
        scopes = [[coded.variables[i] for i in scope] for scope in learned.structure.scopes]
    elif scopes is None or len(scopes) < 2:
        return ()
    return scopes if coding is None else coding.over(graph_of_groups(coded, scopes)).scopes


@dataclass(frozen=True)
class Checkpoint:
    """The last round in the checkpoint, ``Team.state_dict()``, the environment's ``get_state()``, the round's line."""

    round: int
    team: State
    world: State
    line: str


def write_checkpoint(folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint."""
    arrays_name, arrays = _arrays_name(checkpoint.round), dict[str, np.ndarray]()
    plain = {"version": STATE_VERSION, "round": checkpoint.round, "arrays": arrays_name, "line": checkpoint.line}
    states = {"team": checkpoint.team, "world": checkpoint.world}
    for part, state in states.items():
        arrays |= {f"{part}/{name}": np.asarray(array) for name, array in state["arrays"].items()}
    plain["arrays_digest"] = digest_of_arrays(arrays)
    plain |= {part: state["json"] for part, state in states.items()}
    try:
        text = json.dumps(plain)  # not msgspec: generator states exceed 64 bits
    except (TypeError, ValueError) as error:
        raise ConfigError(f"get_state() returned 'json' that is not plain: {error}", at="$.environment") from None
    folder.write_arrays(arrays_name, arrays)
    folder.write_sealed("checkpoint.json", text.encode())
    for old in folder.path.glob(CHECKPOINTS):
        if old.name != arrays_name:
            old.unlink()


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Read the last checkpoint; None if there is none."""
    path = folder.path / "checkpoint.json"
    if not path.is_file():
        return None
    with folder.reading(path.name, "delete it, and `swarmbo resume` starts from round 0"):
        version = json.loads(read_regular(path))["version"]
        if version != STATE_VERSION:
            raise StateVersionError(f"{path}: has version {version!r:.20}; this swarmbo reads {STATE_VERSION}")
        plain = json.loads(folder.read_sealed(path.name))
        if plain["arrays"] != (name := _arrays_name(plain["round"])):
            raise ValueError(f"it names {plain['arrays']!r:.60}; wanted {name}")
        arrays = read_arrays(folder.path / name)
        if plain["arrays_digest"] != digest_of_arrays(arrays):
            raise ValueError(f"{name} was changed or damaged: its digest does not fit")

        def state(part: str) -> State:
            prefix = f"{part}/"
            own_arrays = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            return {"json": plain[part], "arrays": own_arrays}

        return Checkpoint(plain["round"], state("team"), state("world"), plain.get("line", ""))  # "" until 2026-11


def _arrays_name(round_number: int) -> str:
    return f"checkpoint-{round_number:06d}.npz"

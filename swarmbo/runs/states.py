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

_WITHOUT = "delete world.json and summary.json there, and `swarmbo resume {}` writes them again"
STATE_VERSION = 1
State = dict[str, Any]  # {"json": plain data, "arrays": {name: array}}


class WorldRecord(msgspec.Struct, frozen=True):
    """``world.json``. ``world.npz`` holds ``points`` (m, d) and ``values`` (m,) of the ground truth, if there is one.

    For a changing field it also holds ``frames`` (rounds + 1, m), ``maxima`` (rounds + 1,) and ``argmaxes`` (rounds +
    1, d); the values here are then those of round 0. ``starts`` are the locations measured at reset, ``variables`` the
    names of the coordinates of a joint point, none in a field; ``types`` are empty if all are real numbers on linear
    axes. ``scopes`` are None if hidden. ``arrays`` is the digest of ``world.npz``. ``coordinates`` are
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
        types = zip(codes.items(), self.types, strict=True)
        return {name: of.value(code) if of.axis.has(code) else None for (name, code), of in types}


def write_world(
    folder: RunFolder, scenario: Scenario, team: Team, infos: Infos, truth: GroundTruth | None, labels: Labels
) -> None:
    """Write the world, or check that it equals the one already written."""
    identifier: str = scenario.environment["id"]
    domain, joint = _places(team)
    field = team.world if isinstance(team.world, FieldWorld) else None
    offers = Offers() if team.world is None else team.world.offers()
    reported = {agent: Report.of(info, domain if field else None).place for agent, info in infos.items()}
    record = WorldRecord(
        id=identifier,
        name=labels.name or (identifier if truth is None else ""),
        unit=labels.unit,
        axis_unit=labels.axis_unit,
        low=domain.low.tolist(),
        high=domain.high.tolist(),
        agents=list(team.agents),
        starts={agent: place.tolist() for agent, place in reported.items() if place is not None},
        standpoints={agent: place.tolist() for agent, place in offers.standpoints.items()},
        no_go=[[ring.tolist() for ring in rings] for rings in field.no_go()] if field else [],
        bases={agent: place.tolist() for agent, place in field.bases().items()} if field else {},
        coordinates=labels.coordinates,
        goal=team.problem.aim,
        level=team.problem.level,
        **joint,
    )
    arrays, of_truth = dict[str, np.ndarray](), dict[str, Any]()
    if truth is not None:
        arrays = {"points": truth.points, "values": truth.values}
        of_truth = exact({key: getattr(truth, key) for key in ("goal", "level", "maximum", "argmax", "maximum_is")})
    if truth is not None and truth.at_round is not None:
        every = [truth.at(round_number) for round_number in range(scenario.rounds + 1)]
        names = {"frames": "values", "maxima": "maximum", "argmaxes": "argmax"}
        arrays |= {name: np.array([getattr(then, own) for then in every]) for name, own in names.items()}
    record = msgspec.structs.replace(record, arrays=digest_of_arrays(arrays), **of_truth)
    if not (folder.path / "world.json").is_file():
        folder.write_arrays("world.npz", arrays)
        folder.write_json("world.json", record)
        return
    there, record_there = digest_of_arrays(read_truth(folder)), read_world(folder)
    named = {key: getattr(record, key) for key in ("name", "unit", "axis_unit", "maximum_is", "goal", "level")}
    # a new title is no change of the world, and the aim follows from the scenario
    alike = msgspec.structs.replace(record_there, arrays=there, **named)
    if (alike, there) != (record, record.arrays):
        told = f"{folder.path}: the environment of this run has changed: its data or its code"
        raise RunFolderError(f"{told}; put it back, or start the run again in another folder")


def read_world(folder: RunFolder) -> WorldRecord:
    """Read the world of a run."""
    with folder.reading("world.json", _WITHOUT.format(typed(folder.path))):
        return msgspec.json.decode(folder.read_sealed("world.json"), type=WorldRecord)


def read_truth(folder: RunFolder) -> dict[str, np.ndarray]:
    """Read the arrays of a run's world; empty without a ground truth."""
    with folder.reading("world.npz", _WITHOUT.format(typed(folder.path))):
        arrays = read_arrays(folder.path / "world.npz")
        if digest_of_arrays(arrays) != read_world(folder).arrays:
            raise ValueError("it was changed or damaged: its digest does not fit")
        return arrays


def _places(team: Team) -> tuple[Domain, dict[str, Any]]:
    """Box of locations; for joint points also names and owners of their coordinates."""
    world, graph = team.world, team.graph
    if not isinstance(world, FunctionWorld):
        return team.domain, {}
    table: dict[str, Any] = {"variables": list(world.variables), "variable_owners": dict(world.variable_owners)}
    table["types"] = list(world.types.values()) if world.is_typed else []
    if world.graph is not None:
        table["scopes"] = {factor: list(graph.scope(factor)) for factor in graph.factors}
        table["owners"] = {factor: graph.owner(factor) for factor in graph.factors}
    return world.domain, table


class ScopeInUse(msgspec.Struct, frozen=True):
    """A scope that a team learned or drew, and its share of the fitted prior variance of the sum, 0 to 1."""

    variables: list[str]
    share: float


def scopes_in_use(record: RoundRecord, world: WorldRecord) -> list[ScopeInUse]:
    """Scopes of the belief after a round, used for the next point; none if they are the team's, or all variables."""
    if not world.variables or record.hyperparameters is None:
        return []
    learned = msgspec.convert(record.hyperparameters, Learned)
    groups = _groups(learned, world)
    outputscales = learned.hyperparameters.in_one_unit().outputscales
    # no groups, or a user's acquisition with other factors
    if len(groups) != len(outputscales):
        return []
    pairs = zip(groups, outputscales, strict=True)
    return [ScopeInUse(list(group), variance / sum(outputscales)) for group, variance in pairs]


def graph_in_use(record: RoundRecord, world: WorldRecord) -> FactorGraph | None:
    """Graph of these scopes with the world's owners; None without scopes."""
    scopes = scopes_in_use(record, world)
    return graph_of_groups(_whole(world), [scope.variables for scope in scopes]) if scopes else None


def _whole(world: WorldRecord) -> FactorGraph:
    """Graph of one factor over the variables of the team's graph: the world's, without those that are in no factor."""
    inside = {variable for scope in (world.scopes or {}).values() for variable in scope}
    variables = tuple(variable for variable in world.variables if world.scopes is None or variable in inside)
    owners = tuple(world.variable_owners[variable] for variable in variables)
    return FactorGraph(("+".join(["sum", *variables]),), (variables,), owners[:1], variables, owners)


def _groups(learned: Learned, world: WorldRecord) -> Sequence[Sequence[str]]:
    graph, types = _whole(world), dict(zip(world.variables, world.types, strict=False))
    coding = coding_of(graph, MixedDomain.of([types[variable] for variable in graph.variables])) if types else None
    read, groups = graph if coding is None else coding.inner, learned.scopes
    if learned.structure is not None:
        groups = [[read.variables[i] for i in scope] for scope in learned.structure.scopes]
    elif groups is None or len(groups) < 2:
        return ()
    return groups if coding is None else coding.over(graph_of_groups(read, groups)).scopes


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
            own = {n.removeprefix(f"{part}/"): a for n, a in arrays.items() if n.startswith(f"{part}/")}
            return {"json": plain[part], "arrays": own}

        return Checkpoint(plain["round"], state("team"), state("world"), plain.get("line", ""))  # "" until 2026-11


def _arrays_name(round_number: int) -> str:
    return f"checkpoint-{round_number:06d}.npz"

"""What figures and metrics need of the world of a run: ``world.json`` and ``world.npz``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmbo.errors import RunFolderError
from swarmbo.records import TRUE_MAXIMUM, Goal, GroundTruth, Labels
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.seal import digest_of_arrays
from swarmbo.spaces import Domain
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, FunctionWorld, Offers, Report


class WorldRecord(msgspec.Struct, frozen=True):
    """``world.json``. ``world.npz`` holds ``points`` (m, d) and ``values`` (m,) of the truth, where there is one.

    Of a field that changes it also holds ``frames`` (rounds + 1, m), ``maxima`` (rounds + 1,) and ``argmaxes``
    (rounds + 1, d); what is here is then that of round 0.

    Args:
        id: Of the environment.
        name: What the field is, for titles.
        unit: Unit of the outcome.
        axis_unit: Unit of the locations.
        low: Lower bounds (d,) of a location, or of a joint point.
        high: Upper bounds (d,).
        agents: Their names.
        starts: Where agents measured at reset.
        maximum: The field's true maximum; None where it is unknown, as ``argmax``.
        argmax: One location (d,) of it.
        variables: Names of the coordinates of a joint point; empty where every agent measures a place of its own.
        variable_owners: Agent of each variable.
        scopes: Variables of each factor; None where agents are not told.
        owners: Agent of each factor.
        standpoints: Where agents stand that never move; empty where the world does not say.
        goal: What the field is watched for.
        level: The level that is, with the goal ``level``.
        arrays: Digest of ``world.npz``; empty in runs of earlier versions.
        maximum_is: What to call ``maximum``.
        no_go: Regions that nobody may enter, each by its rings of corners.
        bases: Where agents load their batteries.
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
    scopes: dict[str, list[str]] | None = None
    owners: dict[str, str] | None = None
    standpoints: dict[str, list[float]] = {}
    goal: Goal = "peak"
    level: float | None = None
    arrays: str = ""
    maximum_is: str = TRUE_MAXIMUM
    no_go: list[list[list[list[float]]]] = []
    bases: dict[str, list[float]] = {}


def keep_world(
    folder: RunFolder,
    scenario: Scenario,
    team: Team,
    infos: Mapping[str, Any],
    truth: GroundTruth | None,
    labels: Labels,
) -> None:
    """Write the world down; one that was written before must be the same.

    Args:
        folder: Of the run.
        scenario: That names the environment.
        team: In the world, for the box of locations.
        infos: What ``env.reset`` returned.
        truth: The world's, where it tells.
        labels: What its outcomes and places are called.

    Raises:
        RunFolderError: If the world of the run is another one now: its data or its code changed.
    """
    identifier: str = scenario.environment["id"]
    domain, joint = _places(team)
    field = team.world if isinstance(team.world, FieldWorld) else None
    offers = Offers() if team.world is None else team.world.offers()
    record = WorldRecord(
        id=identifier,
        name=labels.name or (identifier if truth is None else ""),
        unit=labels.unit,
        axis_unit=labels.axis_unit,
        low=domain.low.tolist(),
        high=domain.high.tolist(),
        agents=list(team.agents),
        starts={a: place.tolist() for a, info in infos.items() if (place := Report.of(info).place) is not None},
        maximum=None if truth is None else float(truth.maximum),
        argmax=None if truth is None else np.asarray(truth.argmax, dtype=float).tolist(),
        standpoints={agent: place.tolist() for agent, place in offers.standpoints.items()},
        goal="peak" if truth is None else truth.goal,
        level=None if truth is None else truth.level,
        maximum_is=TRUE_MAXIMUM if truth is None else truth.maximum_is,
        no_go=[[ring.tolist() for ring in rings] for rings in field.no_go()] if field else [],
        bases={agent: place.tolist() for agent, place in field.bases().items()} if field else {},
        **joint,
    )
    arrays = {} if truth is None else {"points": truth.points, "values": truth.values}
    if truth is not None and truth.at_round is not None:
        every = [truth.at(round_number) for round_number in range(scenario.rounds + 1)]
        arrays["frames"] = np.array([then.values for then in every])
        arrays["maxima"] = np.array([then.maximum for then in every])
        arrays["argmaxes"] = np.array([then.argmax for then in every])
    record = msgspec.structs.replace(record, arrays=digest_of_arrays(arrays))
    if not (folder.path / "world.json").is_file():
        folder.write_arrays("world.npz", arrays)
        folder.write_json("world.json", record)
        return
    there, record_there = digest_of_arrays(read_truth(folder)), read_world(folder)
    named = {key: getattr(record, key) for key in ("name", "unit", "axis_unit", "maximum_is")}
    alike = msgspec.structs.replace(record_there, arrays=there, **named)  # to be called something else is no change
    if (alike, there) != (record, record.arrays):
        raise RunFolderError(
            f"{folder.path}: the world of this run is another one now: its data or its code changed; "
            "put it back, or start the run again in another folder"
        )


def read_world(folder: RunFolder) -> WorldRecord:
    """The world of a run.

    Raises:
        RunFolderError: If it is missing or damaged.
    """
    path = folder.path / "world.json"
    try:
        return msgspec.json.decode(folder.read_sealed(path.name), type=WorldRecord)
    except RunFolderError:
        raise  # of the scenario
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error


def read_truth(folder: RunFolder) -> dict[str, np.ndarray]:
    """The arrays of the world of a run; none where it does not tell the truth.

    Raises:
        RunFolderError: If they are missing or damaged.
    """
    try:
        arrays = folder.read_arrays("world.npz")
        if folder.is_sealed and digest_of_arrays(arrays) != read_world(folder).arrays:
            raise ValueError("it was changed or damaged: its digest does not fit")
        return arrays
    except RunFolderError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(folder.path / "world.npz", error) from error


def _places(team: Team) -> tuple[Domain, dict[str, Any]]:
    """The box of locations; for joint points also what their coordinates are and who owns what."""
    world, graph = team.world, team.graph
    if not isinstance(world, FunctionWorld):
        return team.domain, {}
    table: dict[str, Any] = {"variables": list(world.variables), "variable_owners": dict(world.variable_owners)}
    if world.graph is not None:
        table["scopes"] = {factor: list(graph.scope(factor)) for factor in graph.factors}
        table["owners"] = {factor: graph.owner(factor) for factor in graph.factors}
    return world.domain, table


def _unreadable(path: Path, error: Exception) -> RunFolderError:
    how = f"delete world.json and summary.json there, and `swarmbo resume {path.parent}` writes them again"
    return RunFolderError(f"{path}: cannot be read ({error}); {how}")

"""Base of worlds whose agents measure a field: its task, observations of equal shape, and radio links."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import networkx as nx
import numpy as np

from swarmbo.boundary.coordinates import Coordinates
from swarmbo_envs.fields.field import Field, FieldInTime
from swarmbo_envs.fields.settings import FieldWorldSettings, Task, field_settings
from swarmbo_envs.saved_state import EpisodeKind
from swarmbo_envs.shared import Places
from swarmbo_envs.simulated_world import Array, Ends, SimulatedWorld

FieldSettingsKind = TypeVar("FieldSettingsKind", bound=FieldWorldSettings)
FieldKind = TypeVar("FieldKind", bound=Field | FieldInTime)


class FieldWorld(SimulatedWorld[FieldSettingsKind, EpisodeKind], Generic[FieldSettingsKind, EpisodeKind, FieldKind]):
    """A world over a field, of which all agents observe alike."""

    field: FieldKind

    @property
    def task(self) -> Task:
        """Aim of the team: ``peak``, ``map`` or ``level``."""
        return self.settings.task

    @property
    def level(self) -> float | None:
        """Watched level; None for other tasks."""
        return self.settings.level

    @property
    def coordinates(self) -> Coordinates | None:
        """Coordinates of the field's input, if they are not metres of the map."""
        return self.field.coordinates

    def _set_alike(self, actions: Mapping[str, Ends], seen: tuple[Array, Array]) -> None:
        """Set the spaces: ``seen`` are the ends of each agent's observations."""
        low, high = (np.tile(end, len(actions)) for end in seen)
        self._set_spaces(actions, dict.fromkeys(actions, seen), (low, high))

    def _description(self) -> dict[str, Any]:
        # defaults of the table are written out, and a file counts by its data, not by its path
        table = msgspec.to_builtins(field_settings(self.settings.field, moving=True))
        table |= {key: f"data {self.field.digest}" for key in ("csv", "raster") if key in table}
        return super()._description() | {"field": msgspec.json.decode(msgspec.json.encode(table))}

    @abstractmethod
    def _rows(self, episode: EpisodeKind) -> Array:
        """Observation of each agent; NaN where nothing was measured yet."""

    def _observe(self, episode: EpisodeKind) -> dict[str, Array]:
        rows = self._rows(episode)
        box: Any = self._observation_spaces[self.possible_agents[0]]
        clipped = np.clip(np.where(np.isnan(rows), box.low, rows), box.low, box.high)
        return dict(zip(self.possible_agents, clipped, strict=True))


def links_in_range(agents: list[str], positions: Places, range_m: float | Sequence[float]) -> "nx.Graph[str]":
    """Graph of agents within both of their radio ranges; edges carry their ``distance`` in metres."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(agents)
    offset = positions[:, None] - positions[None]
    distances = np.hypot(offset[..., 0], offset[..., 1])
    ranges = np.broadcast_to(np.asarray(range_m, dtype=float), len(agents))
    one, other = np.nonzero(np.triu(distances <= np.minimum.outer(ranges, ranges), k=1))
    lengths = [{"distance": length} for length in distances[one, other].tolist()]
    names = ([agents[i] for i in part.tolist()] for part in (one, other))
    graph.add_edges_from(zip(*names, lengths, strict=True))
    return graph


class RadioLinks:
    """``links_in_range``, computed again only after a motion."""

    def __init__(self, agents: list[str]) -> None:
        self._agents = agents
        self._links: nx.Graph[str] = nx.Graph()
        self._of: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, positions: Places, range_m: float | Sequence[float]) -> "nx.Graph[str]":
        """The frozen graph; the same object until an agent moves."""
        asked = np.array(positions), np.array(range_m)
        if self._of is None or not all(map(np.array_equal, asked, self._of)):
            self._links, self._of = nx.freeze(links_in_range(self._agents, positions, range_m)), asked
        return self._links

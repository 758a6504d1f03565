"""Base of worlds whose agents measure a field: its task, observations of equal shape, and radio links."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.landscape import Plume
from swarmbo_envs.fields.scorer import Scorer
from swarmbo_envs.fields.settings import FieldWorldSettings, Task, field_settings
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.shared import Places, Values
from swarmbo_envs.simulated_world import Array, Bounds, Infos, SimulatedWorld

FieldSettingsKind = TypeVar("FieldSettingsKind", bound=FieldWorldSettings)


@dataclass
class FieldEpisode(WorldEpisode):
    """State of an episode in a field: ``score`` of the task, and the belief at knots behind it (``Scorer``)."""

    score: float
    knots_mean: Values
    knots_covariance: Float[np.ndarray, "k k"]


EpisodeKind = TypeVar("EpisodeKind", bound=FieldEpisode)


class FieldWorld(SimulatedWorld[FieldSettingsKind, EpisodeKind], Generic[FieldSettingsKind, EpisodeKind]):
    """World over a field, in which the observations of all agents have the same box."""

    field: Field
    _scorer: Scorer | None = None

    @property
    def task(self) -> Task:
        """Aim of the team: ``peak``, ``map`` or ``level``."""
        return self.settings.task

    @property
    def level(self) -> float | None:
        """Level that the task ``level`` watches; None for other tasks."""
        return self.settings.level

    @property
    def score(self) -> float:
        """Score of the task, larger is better; it includes the measurements at reset.

        ``map``: minus the error of a map of all measurements so far. ``level``: the F1 score of this map. ``peak``:
        minus the simple regret. In each round, the agents' rewards and costs sum to the increase of the score. The
        score is 0 unless ``reward`` is ``task``.
        """
        return self._current().score

    def _set_field(self, field: Field, noise_std: float) -> None:
        self.field = field
        if self.settings.reward == "task" and self.settings.task != "peak":
            key = self.settings.level, noise_std
            self._scorer = field.scorer(key, lambda: Scorer(field, *key))

    def _table_with_seed(self, seed: int) -> dict[str, Any]:
        """Field table with another seed of the draw or plume; other fields are refused."""
        table = self.settings.field or {}
        for kind in ("gp", "plume"):
            if kind in table:
                return {kind: {**table[kind], "seed": seed}}
        got = f"got 'drawn' and the field {', '.join(table) or 'jacksboro'}"
        raise ConfigError(f"{got}; wanted a field that has a seed: field = {{gp = {{…}}}}", at="$.worlds")

    def _shown_range(self, noise_std: float) -> tuple[float, float]:
        """Range of measurements in observations, of all draws if worlds are drawn; values beyond it are clipped."""
        low, high = self.field.span or (self.field.minimum, self.field.maximum)
        if self.settings.worlds == "drawn":
            family: Any = field_settings(self._table_with_seed(0), moving=True)
            gp = getattr(family, "gp", None)
            low, high = (0.0, Plume(family.plume).bound) if gp is None else (gp.mean - 4 * gp.std, gp.mean + 4 * gp.std)
        margin = 6 * noise_std + (0.1 * (high - low) or 1.0)
        return low - margin, high + margin

    def _initial_score(self) -> tuple[float, Values, Float[np.ndarray, "k k"]]:
        mean, covariance = (np.zeros(0), np.zeros((0, 0))) if self._scorer is None else self._scorer.begin()
        return 0.0, mean, covariance

    def _score_gain(self, episode: EpisodeKind, infos: Infos) -> float:
        """Increase of the task's score by a round's measurements, those en route included; 0 with other rewards."""
        if self.settings.reward != "task":
            return 0.0
        reports = [report for info in infos.values() for report in (*info.get("on_the_way", ()), info)]
        measured = [report for report in reports if "measurement" in report]
        places = np.array([report["location"] for report in measured]).reshape(-1, 2)
        earlier_score = episode.score
        if (scorer := self._scorer) is None:
            # best true value measured so far, or in this round if the field changes, minus the maximum
            field = self.field.at(episode.round)
            best = max([field.minimum, *field.value(places).tolist()]) - field.maximum
            is_alone = self.field.change is not None or not episode.round
            episode.score = best if is_alone else max(best, episode.score)
            return episode.score - earlier_score
        values, is_later = np.array([report["measurement"] for report in measured]), episode.round > 0
        belief = scorer.updated(episode.knots_mean, episode.knots_covariance, places, values, is_later)
        episode.knots_mean, episode.knots_covariance = belief
        episode.score = scorer.score(episode.knots_mean, episode.round)
        return episode.score - earlier_score

    @property
    def coordinates(self) -> Coordinates | None:
        """Coordinates of the field's input, such as degrees; None if they are metres of the map."""
        return self.field.coordinates

    def _set_like_spaces(self, actions: Mapping[str, Bounds], seen: tuple[Array, Array]) -> None:
        """Set the spaces: boxes of actions by agent, and one box for every agent's observation, ``seen``."""
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


class RadioLinks:
    """Graph of links between agents that are in range of each other; edges carry their ``distance`` in metres."""

    def __init__(self, agents: list[str]) -> None:
        self._agents = agents
        self._links: nx.Graph[str] = nx.Graph()
        self._cached_inputs: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, positions: Places, range_m: float | Sequence[float]) -> "nx.Graph[str]":
        """The frozen graph; the same object until an agent moves."""
        inputs = np.array(positions), np.array(range_m)
        if self._cached_inputs is not None and all(map(np.array_equal, inputs, self._cached_inputs)):
            return self._links
        graph: Any = nx.empty_graph(self._agents)
        offset = positions[:, None] - positions[None]
        distances = np.hypot(offset[..., 0], offset[..., 1])
        ranges = np.broadcast_to(np.asarray(range_m, dtype=float), len(self._agents))
        first, second = np.nonzero(np.triu(distances <= np.minimum.outer(ranges, ranges), k=1))
        names = ([self._agents[i] for i in part.tolist()] for part in (first, second))
        for one, another, length in zip(*names, distances[first, second].tolist(), strict=True):
            graph._adj[one][another] = graph._adj[another][one] = {"distance": length}  # faster than add_edges_from
        self._links, self._cached_inputs = nx.freeze(graph), inputs
        return self._links

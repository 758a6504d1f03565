"""Agents that stand still and look around: where they stand, what they look at, and who of them saved the energy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, Normalize, to_rgba
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from swarmbo.plotting import style
from swarmbo.plotting.moving_map import moving_image
from swarmbo.plotting.surface import Lattice, level_lines
from swarmbo.records import RoundRecord

_STANDS: dict[str, Any] = {"marker": "s", "linewidths": 0.9, "edgecolors": style.INK, "zorder": 5}
_SPOTS: dict[str, Any] = {
    "marker": "o",
    "linewidths": 0.9,
    "edgecolors": "white",
    "color": style.VERMILLION,
    "zorder": 6,
}
_AWAKE, _ASLEEP = "white", "#9aa3ad"
_EARLIER: dict[str, Any] = {"color": style.VERMILLION, "alpha": 0.35, "s": 7, "linewidths": 0, "zorder": 3.5}


@dataclass(frozen=True)
class Looks:
    """What sensors did in one round.

    Args:
        spots: For each that sampled, what it looked at.
        failed: Who of them measured nothing.
        asleep: Who did not sample.
    """

    spots: dict[str, Float[np.ndarray, " 2"]]
    failed: set[str]
    asleep: set[str]

    @classmethod
    def of(cls, record: RoundRecord, agents: Sequence[str]) -> "Looks":
        """Those of a record; an agent without a sample in it sleeps."""
        looked = {sample.agent: sample for sample in record.samples if not sample.declined}
        return cls(
            {agent: np.asarray(sample.location) for agent, sample in looked.items()},
            {agent for agent, sample in looked.items() if sample.measurement is None},
            set(agents) - set(looked),
        )


def plot_sensors(ax: Axes, records: Sequence[RoundRecord], standpoints: Mapping[str, Float[np.ndarray, " 2"]]) -> Axes:
    """Draw sensors and what they looked at in the last of these rounds, over faint marks of all earlier looks.

    Args:
        ax: Where to draw.
        records: The rounds, from the first on.
        standpoints: Where the sensors stand.

    Returns:
        The axes.
    """
    earlier = [sample.location for record in records for sample in record.samples if not sample.declined]
    if earlier:
        ax.scatter(*np.array(earlier).T, **_EARLIER)
    looks = Looks.of(records[-1], list(standpoints))
    ax.add_collection(_beams(looks, standpoints))
    places = np.array(list(standpoints.values()))
    colours = [_ASLEEP if agent in looks.asleep else _AWAKE for agent in standpoints]
    ax.scatter(*places.T, s=24, color=colours, clip_on=False, **_STANDS)
    good = [spot for agent, spot in looks.spots.items() if agent not in looks.failed]
    if good:
        ax.scatter(*np.array(good).T, s=34, clip_on=False, **_SPOTS)
    failed = [looks.spots[agent] for agent in looks.failed]
    if failed:
        ax.plot(*np.array(failed).T, markersize=7, zorder=6, **style.FAILED)
    return ax


def sensor_legend(has_failed: bool) -> list[Line2D]:
    """What the marks of sensors mean.

    Args:
        has_failed: Whether a measurement failed.
    """
    stands: dict[str, Any] = {"marker": "s", "markeredgecolor": style.INK, "linestyle": "none", "markersize": 6}
    marks = [
        Line2D([], [], markerfacecolor=_AWAKE, label="sensor", **stands),
        Line2D([], [], markerfacecolor=_ASLEEP, label="saved its energy", **stands),
        Line2D([], [], marker="o", color=style.VERMILLION, linestyle="none", markersize=6.5, label="looked at"),
        Line2D([], [], marker="o", color=style.VERMILLION, alpha=0.35, linestyle="none", markersize=3, label="earlier"),
    ]
    if has_failed:
        marks.append(Line2D([], [], **style.FAILED))
    return marks


@dataclass
class SensorMap:
    """The artists of one map with sensors that change from frame to frame; see ``MovingMap``."""

    ax: Axes
    image: AxesImage
    standpoints: Mapping[str, Float[np.ndarray, " 2"]]
    links: LineCollection
    beams: LineCollection
    stands: PathCollection
    spots: PathCollection
    failed: Line2D
    recommendation: Line2D | None
    lattice: Lattice
    level: float | None
    boundary: LineCollection

    @classmethod
    def on(
        cls,
        ax: Axes,
        lattice: Lattice,
        standpoints: Mapping[str, Float[np.ndarray, " 2"]],
        colours: Colormap,
        norm: Normalize,
        link_colour: str,
        marks_peak: bool,
        level: float | None = None,
    ) -> "SensorMap":
        """Add empty artists to a map.

        Args:
            ax: The map.
            lattice: Where the field is evaluated.
            standpoints: Where the sensors stand.
            colours: Colour map of the field, cut into bands.
            norm: Its range, the same for all frames.
            link_colour: Of the radio links.
            marks_peak: Whether the recommendation is shown.
            level: Where the field is at it, a line is drawn; None draws none.
        """
        image = moving_image(ax, lattice, colours, norm)
        links = LineCollection([], colors=link_colour, linewidths=0.5, alpha=0.7, animated=True, zorder=4)
        beams = LineCollection([], colors=style.INK, linewidths=1.0, animated=True, zorder=4.5)
        boundary = LineCollection([], animated=True, **style.LEVEL)
        for lines in (links, beams, boundary):
            ax.add_collection(lines)
        stands = ax.scatter(*np.array(list(standpoints.values())).T, s=22, color=_AWAKE, animated=True, **_STANDS)
        spots = ax.scatter([], [], s=30, animated=True, **_SPOTS)
        (failed,) = ax.plot([], [], "x", color=style.INK, markersize=6, markeredgewidth=1.6, animated=True, zorder=6)
        recommendation = None
        if marks_peak:
            (recommendation,) = ax.plot([], [], animated=True, **style.RECOMMENDATION)
        made = cls(
            ax, image, standpoints, links, beams, stands, spots, failed, recommendation, lattice, level, boundary
        )
        for artist in made.artists():
            artist.set_in_layout(False)  # what moves must not push the axes about
        return made

    def show(self, records: Sequence[RoundRecord], links: list[tuple[str, str]], picture: np.ma.MaskedArray) -> None:
        """Bring all artists to the last of these records."""
        self.image.set_data(picture)
        if self.level is not None and picture.count():
            self.boundary.set_segments(level_lines(self.lattice, picture, self.level))
        looks, places = Looks.of(records[-1], list(self.standpoints)), self.standpoints
        self.links.set_segments([np.stack([places[a], places[b]]) for a, b in links])
        self.beams.set_segments(_segments(looks, places))
        self.stands.set_facecolor([to_rgba(_ASLEEP if agent in looks.asleep else _AWAKE) for agent in places])
        good = [spot for agent, spot in looks.spots.items() if agent not in looks.failed]
        self.spots.set_offsets(np.array(good).reshape(-1, 2))
        failed = np.array([looks.spots[agent] for agent in looks.failed]).reshape(-1, 2)
        self.failed.set_data(failed[:, 0], failed[:, 1])
        if self.recommendation is not None:
            found = records[-1].recommendation
            self.recommendation.set_data(*([], []) if found is None else np.asarray(found.location)[:, None])

    def artists(self) -> list[Artist]:
        """In the order of drawing."""
        drawn: list[Artist] = [self.image, self.boundary, self.links, self.beams, self.stands, self.spots, self.failed]
        return drawn if self.recommendation is None else [*drawn, self.recommendation]


def _segments(looks: Looks, standpoints: Mapping[str, Float[np.ndarray, " 2"]]) -> list[np.ndarray]:
    return [np.stack([standpoints[agent], spot]) for agent, spot in looks.spots.items()]


def _beams(looks: Looks, standpoints: Mapping[str, Float[np.ndarray, " 2"]]) -> LineCollection:
    return LineCollection(_segments(looks, standpoints), colors=style.INK, linewidths=1.0, zorder=4.5)

"""A map whose field, places and radio links change from frame to frame."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize

from swarmbo.plotting import places as marks, style
from swarmbo.plotting.history import Records, World, driven_by, failures, path_of, stops_of
from swarmbo.plotting.surface import Lattice, level_lines, world_lattice
from swarmbo.records import RoundRecord

_RECENT = 6  # rounds of which paths are drawn broad: those of a long run would hide the map
_MOST_APART = 8  # robots that are told apart one by one: more are crowded
_DISC_PT = 12.2  # across a robot, with its edge
_BANDS = 14  # colours of a map: few enough that a GIF compresses, and the edge of a band reads as a contour line

Drawn = dict[str, Sequence[Artist]]  # by what they are, in the order of drawing


class MovingMap:
    """One map of an animation: its image stays, and everything over it is drawn again for each frame."""

    def __init__(
        self,
        ax: Axes,
        lattice: Lattice,
        agents: Sequence[str],
        colours: Colormap,
        norm: Normalize,
        link_colour: str,
        world: World,
        level: float | None = None,
    ) -> None:
        self.ax, self._lattice, self._agents, self._world = ax, lattice, tuple(agents), world
        self._link_colour, self._level = link_colour, level
        found = None if level is None or world.frames is not None else world_lattice(world)
        self._true_lines = [] if found is None else level_lines(found[0], found[0].image(found[1]), level or 0.0)
        self.image = ax.imshow(
            np.ma.masked_all(lattice.shown.shape),
            extent=lattice.extent,
            cmap=ListedColormap(band_colours(colours)),
            norm=norm,
            interpolation="bilinear",
            interpolation_stage="data",
            aspect="equal",
            animated=True,
        )
        self.image.set_in_layout(False)  # what moves must not push the axes about

    def show(self, records: Records, links: list[tuple[str, str]], picture: np.ma.MaskedArray) -> Drawn:
        """Bring the map to the last record; returns artists in drawing order, to be removed but for the image."""
        self.image.set_data(picture)
        lines = self._level is not None and picture.count() and level_lines(self._lattice, picture, self._level)
        drawn: Drawn = {"field": [self.image], "level": self._lines(lines or [], **style.LEVEL)}
        drawn["true level"] = self._lines(self._true_lines, **style.TRUE_LEVEL)
        return drawn | (self._sensors if self._world.standpoints else self._robots)(records, links)

    def _sensors(self, records: Records, links: list[tuple[str, str]]) -> Drawn:
        stands = self._world.standpoints
        look: dict[str, Any] = {"colors": self._link_colour, "linewidths": 0.5, "alpha": 0.7}
        return {
            "links": self._lines([np.stack([stands[a], stands[b]]) for a, b in links], **look),
            "sensors": marks.draw_sensors(self.ax, records[-1], stands, sizes=(22, 30, 6), width=1.6),
            "recommendation": self._recommendation(records[-1]),
        }

    def _robots(self, records: Records, links: list[tuple[str, str]]) -> Drawn:
        ax, agents, is_crowded = self.ax, self._agents, len(self._agents) > _MOST_APART
        ends = {agent: path_of(records, agent)[-1] for agent in agents}
        ways = [driven_by(records, agent) for agent in agents]
        before = [len(driven_by(records[:-_RECENT], agent)) for agent in agents]
        broad: dict[str, Any] = {"width": 0.9} if is_crowded else {"width": 1.6, "path_effects": style.cased(3.0)}
        best = records[-1].best if self._world.goal == "peak" else None
        told = {one.agent: one.battery for one in records[-1].samples if isinstance(one.battery, float)}
        charged = [(index, agent) for index, agent in enumerate(agents) if agent in told]
        star, spots = None if best is None else np.array(best.location), np.array(list(ends.values()))
        spots, star = self.side_by_side(spots, star, bool(told))
        heads = dict(zip(agents, spots, strict=True))
        pairs = [np.stack([ends[a], ends[b]]) for a, b in links if a in ends and b in ends]
        look: dict[str, Any] = {"colors": self._link_colour, "linewidths": 0.6 if is_crowded else 1.1}
        return {
            "no-go": [style.draw_no_go(ax, rings) for rings in self._world.no_go],
            "ways": marks.draw_ways(ax, ways, 0.9),
            "recent": marks.draw_ways(ax, [way[max(0, n - 1) :] for n, way in zip(before, ways, strict=True)], **broad),
            "stops": marks.draw_stops(ax, [stops_of(records, agent) for agent in agents], 2.8),
            "bases": marks.draw_bases(ax, self._world),  # above the ways that lead there
            "failed": marks.draw_failed(ax, failures(records), 6, 1.6, casing=3.2),
            "links": self._lines(pairs, linestyles=(0, (2, 1.5)), **look),
            "recommendation": self._recommendation(records[-1]),
            "best": [] if star is None else ax.plot(*star, **style.BEST),
            "batteries": [box for i, a in charged for box in self._battery(i, heads[a], told[a])],
            "robots": [artist for index, agent in enumerate(agents) for artist in self._robot(index, heads[agent])],
        }

    def _robot(self, index: int, place: Float[np.ndarray, " 2"]) -> list[Artist]:
        """A disc with the number of the robot in it."""
        disc: dict[str, Any] = {"markersize": _DISC_PT - 1.2, "markeredgecolor": "white", "markeredgewidth": 1.2}
        look: dict[str, Any] = {"color": "white", "fontsize": 6.5, "weight": "bold", "ha": "center"}
        (x, y), colour = place.tolist(), style.agent_colour(index)
        number = self.ax.text(x, y, str(index), va="center_baseline", path_effects=style.cased(1.2, style.INK), **look)
        return [*self.ax.plot(x, y, "o", color=colour, clip_on=False, **disc), number]

    def _battery(self, index: int, place: Float[np.ndarray, " 2"], share: float) -> list[Artist]:
        """A battery under a robot; over it where it would reach out of the map."""
        is_above = bool(self._lacks_room(place[None])[0])
        return style.draw_battery(self.ax, place, share, style.agent_colour(index), is_above)

    def _recommendation(self, record: RoundRecord) -> Sequence[Artist]:
        if record.recommendation is None or self._world.goal != "peak":
            return []
        return self.ax.plot(*record.recommendation.location[:2], **style.RECOMMENDATION)

    def _lines(self, segments: Sequence[np.ndarray], **look: Any) -> Sequence[Artist]:
        lines = LineCollection(segments, **look)
        self.ax.add_collection(lines, autolim=False)
        return [lines]

    def _lacks_room(self, places: Float[np.ndarray, "agents 2"]) -> Bool[np.ndarray, " agents"]:
        """Test of each robot: a battery under it would reach out of the map."""
        reach = style.BATTERY_POINTS[2] * self.ax.figure.dpi / 72.0
        return self.ax.transData.transform(places)[:, 1] - reach < self.ax.bbox.y0

    def side_by_side(
        self, places: Float[np.ndarray, "agents 2"], best: Float[np.ndarray, " 2"] | None, have_batteries: bool
    ) -> tuple[Float[np.ndarray, "agents 2"], Float[np.ndarray, " 2"] | None]:
        """Positions of robots and of the best measurement's mark, moved apart where they overlap."""
        if len(places) > _MOST_APART:
            return places, best
        to_pixels, points = self.ax.transData, self.ax.figure.dpi / 72.0
        wide = high = _DISC_PT * points
        if have_batteries:
            width, _, reach = (length * points for length in style.BATTERY_POINTS)
            wide = max(wide, width + 1.5 * points)
            high = 2.0 * reach if self._lacks_room(places).any() else reach + 0.5 * high
        drawn = np.array(places) if best is None else np.vstack([places, best])
        spots = to_pixels.transform(drawn)
        weights = np.where(np.arange(len(drawn)) < len(places), 1.0, 1e9)
        inside = (self.ax.bbox.x0 + 0.5 * wide, self.ax.bbox.x1 - 0.5 * wide)
        moved = spots + style.side_by_side(spots, (wide, high), weights, inside)
        is_aside = (np.abs(moved - spots) > 1e-6).any(axis=1)
        drawn[is_aside] = to_pixels.inverted().transform(moved[is_aside])
        return drawn[: len(places)], None if best is None else drawn[-1]


def band_colours(colours: Colormap) -> Float[np.ndarray, "bands 4"]:
    """The colours (RGBA) that are left of a colour map on a moving map."""
    return colours(np.linspace(0.0, 1.0, _BANDS))

"""Pictures of a field on its map without a display; worlds draw their agents over it."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import AbstractPathEffect

from swarmbo.boundary import look
from swarmbo_envs.fields.field import Field

_PIXELS_PER_INCH = 100


class FieldPicture:
    """A map with a field on it; ``limits`` are the values at the ends of the colours."""

    def __init__(self, field: Field, limits: tuple[float, float] | None = None) -> None:
        self._field = field
        size, largest = (field.high - field.low).max(), np.abs(field.low).max()
        self._unit_m, self._unit = (1000.0, "km") if size >= 5000 else (1.0, "m")
        self._origin = field.low if largest > 100 * size else np.zeros(2)
        is_said = field.unit.lower() in ("", field.quantity.lower())  # "pH (pH)" would be redundant
        label = (field.unit or field.quantity) if is_said else f"{field.quantity} ({field.unit})"
        with look.applied():
            self._figure = Figure(figsize=_size_in_inches(field), dpi=_PIXELS_PER_INCH, layout="constrained")
            self._canvas = FigureCanvasAgg(self._figure)
            self.axes = self._figure.subplots()
            self.axes.grid(visible=False)
            image = self._draw_field(*(limits or (None, None)))
            bar = self._figure.colorbar(image, ax=self.axes, shrink=0.85, pad=0.02)
            bar.set_label(label)
        bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]

    def to_axes(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "k 2"]:
        """Places in metres as coordinates of the axes."""
        return (X - self._origin) / self._unit_m

    def finish(self, title: str) -> UInt8[np.ndarray, "height width 3"]:
        """The picture, as bytes of red, green and blue."""
        axes, field = self.axes, self._field
        self._write_title(title)
        offset = [f" − {value / self._unit_m:g} {self._unit}" if value else "" for value in self._origin]
        axes.set_xlabel(f"east{offset[0]} ({self._unit})")
        axes.set_ylabel(f"north{offset[1]} ({self._unit})")
        (west, south), (east, north) = self.to_axes(np.stack([field.low, field.high]))
        margin = 0.02 * max(east - west, north - south)
        axes.set_xlim(west - margin, east + margin)
        axes.set_ylim(south - margin, north + margin)
        axes.set_aspect("equal")
        for spine in axes.spines.values():
            spine.set_visible(False)
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _write_title(self, title: str) -> None:
        """Write the title over the whole picture, in smaller letters if it would not fit."""
        text = self._figure.suptitle(title, x=0.01, ha="left", fontsize=10, parse_math=False)
        room = 0.98 * self._figure.bbox.width
        width = text.get_window_extent(self._canvas.get_renderer()).width
        text.set_fontsize(10 * min(1.0, room / width))

    def _draw_field(self, low: float | None, high: float | None) -> Any:
        """Draw the field as an image, or as coloured sites if nothing lies between them."""
        field = self._field
        colours: dict[str, Any] = {"cmap": look.MEAN_COLOURS, "vmin": low, "vmax": high}
        if field.sites_only:
            east, north = self.to_axes(field.sites).T
            values = field.value(field.sites)
            return self.axes.scatter(east, north, c=values, s=46, marker="s", linewidths=0, **colours)
        (west, south), (east, north) = self.to_axes(np.stack([field.low, field.high]))
        extent = (west, east, south, north)
        return self.axes.imshow(field.raster, origin="lower", extent=extent, interpolation="bilinear", **colours)


def outline(width: float) -> list[AbstractPathEffect]:
    """Path effects that keep a mark readable on any colour; ``width`` in points."""
    return look.cased(width, look.INK)


def _size_in_inches(field: Field) -> tuple[float, float]:
    """Size of about six inches for the longer side of the map, with room for labels and the colour bar."""
    width, height = field.high - field.low
    longer = max(width, height)
    return 1.9 + 6 * max(0.35, float(width / longer)), 1.1 + 6 * max(0.35, float(height / longer))

"""Joint points as a picture: one row a variable, one column a round, however many variables there are."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedLocator

from swarmbo.plotting import style
from swarmbo.plotting.history import World
from swarmbo.plotting.surface import add_colour_bar
from swarmbo.records import RoundRecord

_MOST_NAMES = 40
_LONGEST = 28  # characters of a variable's values
_DARK = 0.6  # shares below have dark colours


def plot_variables(ax: Axes, records: Sequence[RoundRecord], world: World) -> Axes:
    """Draw every joint point that was evaluated, as shares of the variables' ranges; a cross where it failed.

    Returns:
        The axes; the image is its only one.
    """
    rounds = [record.round for record in records if record.joint is not None]
    shares = np.array([_share(world, record.joint.location) for record in records if record.joint is not None])
    if not len(rounds):
        return style.say(ax, "nothing was evaluated yet")
    _shares(ax, shares.T, (rounds[0] - 0.5, rounds[-1] + 0.5))
    failed = [record.round for record in records if record.joint is not None and record.joint.measurement is None]
    if failed:  # an empty line that is not clipped would take room at the corner of the page
        marks: dict[str, Any] = {"color": style.VERMILLION, "markersize": 5.0, "clip_on": False, "label": "failed"}
        ax.plot(failed, np.full(len(failed), -0.5), "x", **marks)
    ax.set_title("Evaluated")
    style.rounds_axis(ax)
    return _name_rows(ax, world)


def plot_found(ax: Axes, records: Sequence[RoundRecord], world: World) -> Axes:
    """Draw the best point, the recommendation and, where it is known, the true maximum, in the same way.

    Arguments and result are those of ``plot_variables``.
    """
    last = records[-1]
    found = {
        "best": None if last.best is None else last.best.location,
        "recommended": None if last.recommendation is None else last.recommendation.location,
        world.maximum_is: None if world.argmax is None else world.argmax.tolist(),
    }
    shown = {name: _share(world, place) for name, place in found.items() if place is not None}
    if not shown:
        return style.say(ax, "")
    image = _shares(ax, np.array(list(shown.values())).T, (-0.5, len(shown) - 0.5))
    if world.types:
        _write_values(ax, world, [place for place in found.values() if place is not None])
    ax.set_xticks(range(len(shown)), list(shown), rotation=40, ha="right", rotation_mode="anchor")
    ax.set_title("Found")
    add_colour_bar(ax, image, "share of range")
    return _name_rows(ax, world)


def variables_figure(records: Sequence[RoundRecord], world: World) -> Figure:
    """All joint points of a run, beside what was found.

    Returns:
        A figure of two panels.
    """
    with style.applied():
        height = float(np.clip(1.8 + 0.17 * world.domain.n_dims, 2.8, 9.0))
        figure = style.new_figure(10.5, height)
        left, right = figure.subplots(1, 2, width_ratios=(8, 2.5 if world.types else 1), sharey=True)
        plot_variables(left, records, world)
        plot_found(right, records, world)
        right.tick_params(labelleft=False)
    return figure


def _share(world: World, location: Sequence[float]) -> Float[np.ndarray, " d"]:
    return world.domain.to_unit(np.asarray(location, dtype=float))


def _shares(ax: Axes, shares: Float[np.ndarray, "d k"], sides: tuple[float, float]) -> AxesImage:
    colours: dict[str, Any] = {"cmap": style.MEAN_COLOURS, "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"}
    image = ax.imshow(shares, extent=(*sides, len(shares) - 0.5, -0.5), origin="upper", aspect="auto", **colours)
    ax.grid(visible=False)
    return image


def _name_rows(ax: Axes, world: World) -> Axes:
    step = -(-len(world.variables) // _MOST_NAMES)
    rows = list(range(0, len(world.variables), step))
    ax.yaxis.set_major_locator(FixedLocator(rows))
    ax.set_yticklabels([_title(world, row) for row in rows])
    return ax


def _title(world: World, row: int) -> str:
    """Name of a variable, with its values if it has a type."""
    name = world.variables[row]
    return f"{name}: {textwrap.shorten(world.types[row].in_words, _LONGEST, placeholder=' …')}" if world.types else name


def _write_values(ax: Axes, world: World, places: Sequence[Sequence[float]]) -> None:
    """Write the users' values of joint points, one a column."""
    for column, place in enumerate(places):
        for row, (of, code) in enumerate(zip(world.types, place, strict=True)):
            value = of.value(code)
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            is_dark = float(world.domain.to_unit(np.asarray(place))[row]) < _DARK
            where: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(column, row, text[:_LONGEST], color="white" if is_dark else "black", **where)

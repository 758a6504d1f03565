"""Map of a survey: expected values and their uncertainty, samples, and the next places."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmbo.plotting import style
from swarmbo.plotting.surface import Lattice, plot_lattice
from swarmbo.survey.plan import SurveyPlan


def survey_figure(plan: SurveyPlan, title: str = "") -> Figure:
    """Two panels in the coordinates of the file: expected values, and their standard deviation."""
    found, samples, coordinates = plan.map, plan.samples, plan.samples.coordinates
    lattice = Lattice(found.x, found.y, np.isfinite(found.mean))
    own = coordinates.own(samples.places)
    # a degree of longitude is shorter than one of latitude
    aspect = 1.0 if coordinates.unit == "m" else 1.0 / np.cos(np.deg2rad(float(found.y.mean())))
    ratio = np.ptp(found.y) * aspect / np.ptp(found.x)
    with style.applied():
        size = (10.5, 1.4 + 3.9 * ratio) if ratio < 1.3 else (3.0 + 8.4 / ratio, 6.4)
        figure = style.new_figure(*size, layout="compressed")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        quantity = samples.quantity
        pictures = ((found.mean, style.MEAN_COLOURS, quantity), (found.std, style.STD_COLOURS, f"std of {quantity}"))
        for ax, (values, colours, label) in zip(panels, pictures, strict=True):
            plot_lattice(ax, lattice, values.ravel(), colours, label=label)
            ax.set_aspect(aspect)
            ax.grid(visible=False)
            ax.scatter(*own.T, s=11, facecolors="white", edgecolors=style.INK, linewidths=0.6, label="sample", zorder=3)
            for number, place in enumerate(plan.places):
                ax.plot(*place.place, "o", ms=13, mfc="white", mec=style.VERMILLION, mew=1.8, zorder=5, clip_on=False)
                ax.annotate(str(number + 1), place.place, ha="center", va="center_baseline", fontsize=9, zorder=6)
            ax.ticklabel_format(useOffset=False)
            ax.locator_params(axis="x", nbins=4 if ratio < 1.3 else 1)
            if coordinates.unit == "degrees" and ratio >= 1.3:  # their long labels would overlap
                ax.tick_params(axis="x", rotation=45)
            ax.set_xlabel(coordinates.columns[0])
        handles = panels[0].get_legend_handles_labels()[0]
        if plan.level is not None and np.nanmin(found.mean) < plan.level < np.nanmax(found.mean):
            panels[0].contour(found.x, found.y, lattice.image(found.mean.ravel()), levels=[plan.level], **style.LEVEL)
            handles.append(Line2D([], [], color=style.INK, linewidth=1.8, label=f"level {plan.level:g}"))
        panels[0].set_ylabel(coordinates.columns[1])
        mark: dict[str, Any] = {"marker": "o", "ms": 9, "mfc": "white", "mec": style.VERMILLION, "mew": 1.6}
        handles.append(Line2D([], [], label="next location", linestyle="none", **mark))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        style.name_figure(figure, title, f"{len(samples)} samples")
    return figure

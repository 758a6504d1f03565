"""Figures of runs, drawn from records.

Every ``plot_...`` function of its modules draws on the Axes ``ax`` and returns it. ``records`` are the rounds of a run,
the first included, ``world`` is its world, and ``unit`` the unit of its outcomes.
"""

from swarmbo.plotting.comparison import (
    Difference as Difference,
    RegretCurves as RegretCurves,
    comparison_figure as comparison_figure,
)
from swarmbo.plotting.history import World as World
from swarmbo.plotting.run_figures import write_figures as write_figures
from swarmbo.plotting.style import Formats as Formats, applied as applied, save as save
from swarmbo.plotting.variables import plot_factor_graph as plot_factor_graph

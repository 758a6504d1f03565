"""Figures of runs, drawn from records.

Every ``plot_...`` function draws on the Axes ``ax`` and returns it. ``records`` are the rounds of a run, from the first
on. ``world`` is the run's world, and ``unit`` is the unit of the outcome.
"""

from swarmbo.plotting.agent_maps import (
    AgentViews as AgentViews,
    agent_maps_figure as agent_maps_figure,
    plot_view_errors as plot_view_errors,
)
from swarmbo.plotting.animation import render_frames as render_frames, write_animation as write_animation
from swarmbo.plotting.belief_map import (
    belief_map_figure as belief_map_figure,
    plot_level as plot_level,
    plot_mean as plot_mean,
    plot_std as plot_std,
    plot_truth as plot_truth,
)
from swarmbo.plotting.comparison import (
    Difference as Difference,
    RegretCurves as RegretCurves,
    comparison_figure as comparison_figure,
    plot_differences as plot_differences,
    plot_regret_curves as plot_regret_curves,
)
from swarmbo.plotting.history import World as World
from swarmbo.plotting.maps import (
    plot_findings as plot_findings,
    plot_paths as plot_paths,
    plot_sensors as plot_sensors,
)
from swarmbo.plotting.regret import (
    plot_best as plot_best,
    plot_declined as plot_declined,
    plot_level_score as plot_level_score,
    plot_map_error as plot_map_error,
    plot_regret as plot_regret,
    regret_figure as regret_figure,
)
from swarmbo.plotting.run_figures import (
    ErrorTraces as ErrorTraces,
    error_traffic_figure as error_traffic_figure,
    plot_errors as plot_errors,
    write_figures as write_figures,
)
from swarmbo.plotting.style import Formats as Formats, applied as applied, save as save
from swarmbo.plotting.traffic import (
    faults_figure as faults_figure,
    plot_age as plot_age,
    plot_failures as plot_failures,
    plot_fates as plot_fates,
    plot_network as plot_network,
    plot_traffic as plot_traffic,
    traffic_figure as traffic_figure,
)
from swarmbo.plotting.variables import (
    factor_graph_figure as factor_graph_figure,
    plot_factor_graph as plot_factor_graph,
    plot_found as plot_found,
    plot_variables as plot_variables,
    variables_figure as variables_figure,
)

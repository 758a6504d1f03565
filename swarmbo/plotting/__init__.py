"""Figures of runs: every plot function takes an Axes and returns it, and reads records, never live objects."""

from swarmbo.plotting.animation import render_frames as render_frames
from swarmbo.plotting.animation import write_animation as write_animation
from swarmbo.plotting.belief_map import belief_map_figure as belief_map_figure
from swarmbo.plotting.belief_map import plot_findings as plot_findings
from swarmbo.plotting.belief_map import plot_mean as plot_mean
from swarmbo.plotting.belief_map import plot_paths as plot_paths
from swarmbo.plotting.belief_map import plot_std as plot_std
from swarmbo.plotting.belief_map import plot_truth as plot_truth
from swarmbo.plotting.comparison import Difference as Difference
from swarmbo.plotting.comparison import RegretCurves as RegretCurves
from swarmbo.plotting.comparison import comparison_figure as comparison_figure
from swarmbo.plotting.comparison import plot_differences as plot_differences
from swarmbo.plotting.comparison import plot_regret_curves as plot_regret_curves
from swarmbo.plotting.comparison import write_comparison_figure as write_comparison_figure
from swarmbo.plotting.factor_graph import factor_graph_figure as factor_graph_figure
from swarmbo.plotting.factor_graph import plot_factor_graph as plot_factor_graph
from swarmbo.plotting.history import World as World
from swarmbo.plotting.regret import plot_best as plot_best
from swarmbo.plotting.regret import plot_map_error as plot_map_error
from swarmbo.plotting.regret import plot_regret as plot_regret
from swarmbo.plotting.regret import regret_figure as regret_figure
from swarmbo.plotting.run_figures import write_figures as write_figures
from swarmbo.plotting.style import applied as applied
from swarmbo.plotting.traffic import plot_traffic as plot_traffic
from swarmbo.plotting.traffic import traffic_figure as traffic_figure

"""
A DCOP: value and bound by round
================================

``traced`` solves a DCOP and records every round. ``solve_trace_figure`` plots the cost of the best choice so far. It
also plots the bound. The agents compute the bound after they have chosen.
"""

import tempfile
from pathlib import Path

import swarmbo as sb
from swarmbo.coordination.plan import traced
from swarmbo.interchange import read_problem
from swarmbo.plotting import save
from swarmbo.plotting.run_figures import solve_trace_figure
from swarmbo.runs.scenario_files import find

problem = read_problem(find("channels", ".yaml"))
solution, rows = traced(sb.DSA(bound="mplp"), problem.graph, problem.tables, seed=1)
figure = solve_trace_figure(rows, "Ten access points, three channels: DSA", "cost", problem.told)
pictures = [save(figure, Path(tempfile.mkdtemp(), "trace.png"))]

# %%
# To draw the same figure, use the command line::
#
#     swarmbo solve channels --coordination dsa --bound mplp --seed 1 --figure trace.png

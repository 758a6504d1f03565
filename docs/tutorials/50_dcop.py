"""
A DCOP: choose channels, with a bound
=====================================

In a distributed constraint optimisation problem (DCOP), agents own variables with a few values each. Constraints
between the variables have costs. This tutorial solves a problem from a file by four methods. It also computes a lower
bound on the cost of all choices.
"""

# %%
# The file
# --------
# swarmbo reads files of pyDCOP (YAML, with ``pip install -e ".[dcop]"``) and of the UAI competitions without changes.
# The example ``channels`` comes with swarmbo. Ten access points each choose one of three channels. Two access points
# interfere if they are near each other and choose the same channel.

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import swarmbo as sb
from swarmbo.coordination.plan import traced
from swarmbo.interchange import read_problem
from swarmbo.plotting import applied
from swarmbo.runs.scenario_files import find

path = find("channels", ".yaml")
text = path.read_text().splitlines()
start = text.index("variables:")
print("\n".join([*text[start : start + 6], "  ...", *text[text.index("constraints:") :][:4], "  ..."]))

# %%
# The solution
# ------------
# A method solves the problem from its graph and tables. swarmbo maximises, so the values are negated costs. ``told``
# converts a value into a cost. ``chosen`` returns the chosen values by their names. ``bound="mplp"`` computes a bound
# by messages. ``status`` states how the method ended.

problem = read_problem(path)
methods = {
    "exact": sb.Exact(bound="mplp"),
    "max-sum": sb.MaxSum(bound="mplp"),
    "dsa": sb.DSA(bound="mplp"),
    "mgm": sb.MGM(bound="mplp"),
}
solved = {name: traced(method, problem.graph, problem.tables, seed=1) for name, method in methods.items()}
for name, (solution, _) in solved.items():
    report = solution.report
    cost, bound = problem.told(solution.value), problem.told(report.upper_bound)
    sent = f"{report.messages:4} messages, {report.bytes:6} bytes"
    print(f"{name:8} cost {cost:4.1f}, no choice costs less than {bound:.2f}, {sent}, {report.status}")
print(problem.chosen(solved["exact"][0].assignment))

# %%
# ``exact`` finds the optimum if its tables are small, and refuses larger problems. For larger problems, use the other
# methods. The choice of these methods may cost more than the optimum. The bound limits this difference.
#
# The graph below shows the exact solution. A line joins access points that share a constraint. The colour of an access
# point shows its channel.

chosen = problem.chosen(solved["exact"][0].assignment)
constrained = nx.Graph()
for factor in problem.graph.factors:
    scope = problem.graph.scope(factor)
    constrained.add_edges_from((one, other) for one in scope for other in scope if one < other)
with applied():
    figure, panel = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
colours = {1: "#0072b2", 2: "#e69f00", 3: "#009e73"}
positions = nx.kamada_kawai_layout(constrained)
nx.draw_networkx(
    constrained,
    positions,
    ax=panel,
    node_color=[colours[chosen[node]] for node in constrained],
    font_size=8,
    node_size=700,
)
for channel, colour in colours.items():
    panel.scatter([], [], s=90, color=colour, label=f"channel {channel}")
panel.legend(loc="lower left")
panel.set_axis_off()
panel.set_title("Channels of the exact solution")
plt.show()

# %%
# How a choice came about
# -----------------------
# ``traced`` also returns a row for each round. A row contains the best choice so far. When the choice is made, the
# agents compute the bound, and the rows contain the bound of each round. The left figure shows cost (solid) and bound
# (dotted) against rounds. The right figure shows them against the bytes that were sent. A dot marks the end.

with applied():
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for (name, (_, rows)), colour in zip(solved.items(), ("black", "#0072b2", "#d55e00", "#009e73"), strict=True):
    for panel, at in zip(panels, ([r.round for r in rows], [r.traffic.bytes for r in rows]), strict=True):
        cost = [np.nan if r.value is None else problem.told(r.value) for r in rows]
        bound = [np.nan if r.bound is None else problem.told(r.bound) for r in rows]
        panel.step(at, cost, where="post", color=colour, label=name)
        panel.plot(at[-1], cost[-1], "o", color=colour)
        panel.step(at, bound, where="post", color=colour, linestyle=":")
panels[0].set(title="by round", xlabel="round", ylabel="cost (solid), bound (dotted)")
panels[1].set(title="by traffic", xlabel="bytes sent", xscale="log")
panels[0].legend()
plt.show()

# %%
# You can solve the same problem from the command line::
#
#     swarmbo solve channels --coordination dsa --bound mplp --seed 1
#     swarmbo solve channels --coordination exact --out solution.json --figure trace.png

"""
A function: variables and factor graph
======================================

Powell's function is a sum of six factors. Each of six agents sets four variables. In each round, the team is told the
value of every factor. ``variables`` shows all values that were tried, and the recommendation. ``factor_graph`` shows
the scopes. ``regret`` plots the regret against evaluations.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/powell"
run(load("powell", ["rounds=12"]), folder)
pictures = sb.load_run(folder).plot("variables", "factor_graph", "regret")

# %%
# To repeat this run, use the command line::
#
#     swarmbo run powell --set rounds=12

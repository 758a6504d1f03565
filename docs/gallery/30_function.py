"""
A function: variables and factor graph
======================================

Six agents set four variables each, and are told the value of every factor of Powell's function. ``variables`` shows all
values that were tried and the recommendation, ``factor_graph`` the scopes.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/powell"
run(load("powell", ["rounds=16"]), folder)
pictures = sb.load_run(folder).plot("variables", "factor_graph", "regret")

# %%
# The same at the prompt::
#
#     swarmbo run powell --set rounds=16

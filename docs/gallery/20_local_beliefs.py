"""
Sensors: local beliefs and lost messages
========================================

Each of 24 sensors has a local belief, made of its samples and of those that reached it. Here links lose half of the
messages, with one exchange per round. ``agents`` shows four of the maps; ``error_traffic`` shows the
error of all of them against rounds and bytes.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/plume"
run(load("field-plume", ["rounds=8", "belief.loss=0.5", "belief.steps=1"]), folder)
pictures = sb.load_run(folder).plot("agents", "error_traffic", "belief")

# %%
# The same at the prompt::
#
#     swarmbo run field-plume --set rounds=8 --set belief.loss=0.5 --set belief.steps=1

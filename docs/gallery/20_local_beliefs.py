"""
Sensors: local beliefs and lost messages
========================================

Each of 24 sensors has a local belief. The belief is computed from the sensor's own samples and from the samples that
have reached it. In this run, links lose half of the messages, and neighbours exchange messages once per round.
``agents`` shows the maps of four sensors. ``error_traffic`` plots the map errors of all sensors against rounds and
against bytes. ``belief`` shows the belief from all data.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/plume"
run(load("field-plume", ["rounds=6", "belief.loss=0.5", "belief.steps=1"]), folder)
pictures = sb.load_run(folder).plot("agents", "error_traffic", "belief")

# %%
# To repeat this run, use the command line::
#
#     swarmbo run field-plume --set rounds=6 --set belief.loss=0.5 --set belief.steps=1

"""
A wireless network: film of the powers
======================================

Twelve access points tune their powers for 36 users. The film shows the signal-to-interference-and-noise ratio over the
area, the powers, and the rate of every user.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/wlan"
run(load("wlan", ["rounds=14"]), folder)
done = sb.load_run(folder)
pictures = done.plot("run")

# %%
# The next figures show the best capacity so far, the powers, and the factor graph. The factor graph connects access
# points that are in range of each other.

pictures = done.plot("regret", "variables", "factor_graph")

# %%
# To repeat this run, use the command line::
#
#     swarmbo run wlan --set rounds=14

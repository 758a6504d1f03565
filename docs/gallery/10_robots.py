"""
Robots: belief, regret, traffic, film
=====================================

``Run.plot`` draws the figures of a run. ``belief`` shows the mean and the uncertainty of the belief over the map, the
paths of the robots, and the recommendation. ``regret`` plots the regret against rounds. ``traffic`` shows the messages
by their purpose.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/robots"
run(load("robots", ["rounds=6"]), folder)
done = sb.load_run(folder)
print(done)
pictures = done.plot("belief", "regret", "traffic")

# %%
# The film of the run has one frame for each round:

pictures = done.plot("run")

# %%
# To repeat this run, use the command line::
#
#     swarmbo run robots --set rounds=6

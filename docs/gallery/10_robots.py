"""
Robots: belief, regret, traffic, film
=====================================

``Run.plot`` draws the figures of a run. ``belief`` shows mean and uncertainty, the paths and the recommendation;
``regret`` what is lost against the true summit; ``traffic`` the messages by purpose.
"""

import tempfile

import swarmbo as sb
from swarmbo.runs import load, run

folder = f"{tempfile.mkdtemp()}/robots"
run(load("robots", ["rounds=8"]), folder)
done = sb.load_run(folder)
print(done)
pictures = done.plot("belief", "regret", "traffic")

# %%
# The film of the run, a frame for each round:

pictures = done.plot("run")

# %%
# The same at the prompt::
#
#     swarmbo run robots --set rounds=8

"""
A comparison of methods
=======================

Two coordination methods run with three seeds each. ``compare`` pairs their runs by seed. The upper figure shows the
mean regret of each method with bootstrap intervals. The lower figure shows the paired differences. (Three seeds keep
this page quick. For a study, use twenty seeds.)
"""

import tempfile
from pathlib import Path

from swarmbo.compare import compare
from swarmbo.compare.output import draw_comparison
from swarmbo.runs import load, run

out = Path(tempfile.mkdtemp())
for method in ("exact", "independent"):
    for seed in range(3):
        run(load("robots", ["rounds=6", f"seed={seed}", f"coordination.kind={method}"]), out / f"{method}-{seed}")
pictures = [draw_comparison(compare([out]), out / "comparison.png")]

# %%
# To repeat this comparison, use the command line::
#
#     swarmbo sweep robots --seeds 3 --set rounds=6 --set coordination.kind=exact,independent
#     swarmbo compare runs/robots --figure comparison.png

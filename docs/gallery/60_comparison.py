"""
A comparison of methods
=======================

Two coordination methods run with three seeds each; ``compare`` pairs them by seed. The figure shows the mean
regret with bootstrap intervals, and below it the paired differences. (Three seeds keep this page quick; a study wants
twenty.)
"""

import tempfile
from pathlib import Path

from swarmbo.compare import compare
from swarmbo.compare.output import draw_comparison
from swarmbo.runs import load, run

out = Path(tempfile.mkdtemp())
for method in ("exact", "independent"):
    for seed in range(3):
        run(load("robots", ["rounds=8", f"seed={seed}", f"coordination.kind={method}"]), out / f"{method}-{seed}")
pictures = [draw_comparison(compare([out]), out / "comparison.png")]

# %%
# The same at the prompt::
#
#     swarmbo sweep robots --seeds 3 --set rounds=8 --set coordination.kind=exact,independent
#     swarmbo compare runs/robots --figure comparison.png

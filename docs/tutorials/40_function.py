"""
A function with parts: ask and tell
===================================

Your objective is expensive, and it is a sum of parts. Each part depends on a few of the variables. This tutorial
maximises such a sum. It compares total outcomes with outcomes of the parts. It also shows batches, and evaluations that
fail.
"""

# %%
# The objective
# -------------
# The objective has eight variables and seven parts. Each part depends on two neighbouring variables. The sum is a
# curved ridge. Its maximum is 0, where all variables are 1. In practice, a simulator, a machine or a person computes
# the outcome. swarmbo maximises. To minimise a cost, tell its negative.

import matplotlib.pyplot as plt
import numpy as np

import swarmbo as sb
from swarmbo.plotting import applied, plot_factor_graph

VARIABLES = [f"x{i}" for i in range(8)]
SCOPES = {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(7)}
BOUNDS = dict.fromkeys(VARIABLES, (-2.0, 2.0))


def parts(point: dict[str, float]) -> dict[str, float]:
    """The outcome of each part."""
    return {f: -((point[b] - point[a] ** 2) ** 2) - 0.1 * (1 - point[a]) ** 2 for f, (a, b) in SCOPES.items()}


graph = sb.FactorGraph.from_scopes(SCOPES)
print(graph)

# %%
# This is the factor graph. Squares are the parts, and circles are the variables.

with applied():
    figure, panel = plt.subplots(figsize=(7, 2), layout="constrained")

plot_factor_graph(panel, graph)
plt.show()

# %%
# Totals, parts, or no graph
# --------------------------
# We compare four methods. Each method spends 32 evaluations with each of three seeds. All methods begin with the same
# ten points.
#
# - *parts*: the team knows the graph and is told the outcome of every part (``outcomes="per-factor"``);
# - *total*: the team knows the graph and is told the sum;
# - *no graph*: the team knows nothing about the structure (``sb.Team(None, bounds)``);
# - *TPE*: Optuna's default sampler (``coordination="optuna-tpe"``).


def team_for(method: str, seed: int) -> sb.Team:
    """The team of one of the four methods."""
    if method == "parts":
        return sb.Team(graph, BOUNDS, outcomes="per-factor", seed=seed)
    if method == "total":
        return sb.Team(graph, BOUNDS, seed=seed)
    if method == "no graph":
        return sb.Team(None, BOUNDS, seed=seed)
    return sb.Team(None, BOUNDS, coordination="optuna-tpe", seed=seed)


def regret(method: str, seed: int, batch: int = 1, evaluations: int = 32) -> list[float]:
    """Regret of the best point so far, after each evaluation."""
    team, best = team_for(method, seed), [-np.inf]
    while len(best) <= evaluations:
        for query in team.ask(batch):
            found = parts(query.point)
            total = sum(found.values())
            team.tell(query, found if method == "parts" else total)
            best.append(max(best[-1], total))
    return [-value for value in best[1:]]


curves = {
    method: np.array([regret(method, seed) for seed in range(3)]) for method in ("parts", "total", "no graph", "TPE")
}
with applied():
    figure, panel = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (method, found), style in zip(curves.items(), ("-", "--", "-.", ":"), strict=True):
    panel.plot(np.arange(1, 33), np.median(found, axis=0), style, label=method)
    panel.fill_between(np.arange(1, 33), found.min(axis=0), found.max(axis=0), alpha=0.1)
    middle = np.median(found, axis=0)
    print(f"{method:9} median regret after 16 evaluations {middle[15]:.3f}, after 32 {middle[31]:.3f}")
panel.set(title="Regret, 3 seeds: median and range", xlabel="evaluations", ylabel="regret", yscale="log")
panel.legend()
plt.show()

# %%
# The figure shows the regret against the number of evaluations. The method *parts* gains most, because each evaluation
# teaches seven small models at once. If only the sum is told, the graph gains nothing here. The ranges of *total* and
# *no graph* overlap.
#
# Batches
# -------
# ``ask(4)`` returns four points. You can evaluate them at the same time and tell their outcomes in any order. The team
# chooses the points one after another and treats earlier ones as evaluated.

batched = np.array([regret("total", seed, batch=4) for seed in range(3)])
print(f"total, one by one   median regret after 32 evaluations {np.median(curves['total'][:, 31]):.3f}")
print(f"total, four by four median regret after 32 evaluations {np.median(batched[:, 31]):.3f}, in 8 rounds")

# %%
# A corner that fails
# -------------------
# Now the simulator does not converge if ``x0`` and ``x1`` are both above 0.5. The maximum lies in this corner. The
# outcome ``None`` states that an evaluation failed. The team learns where evaluations fail and asks fewer points there.


def fails(point: dict[str, float]) -> bool:
    """Whether an evaluation fails."""
    return point["x0"] > 0.5 and point["x1"] > 0.5


team = sb.Team(graph, BOUNDS, seed=0)
asked, failed = [], []
for _ in range(10):
    for query in team.ask(4):
        asked.append((query.point["x0"], query.point["x1"]))
        failed.append(fails(query.point))
        team.tell(query, None if failed[-1] else sum(parts(query.point).values()))
asked, failed = np.array(asked), np.array(failed)
print(f"{failed[:20].sum()} of the first 20 evaluations failed, {failed[20:].sum()} of the 20 after them")
best = team.recommend()
print(f"best total {best.mean:.3f} at x0 = {best.point['x0']:.2f}, x1 = {best.point['x1']:.2f}")

with applied():
    figure, panel = plt.subplots(figsize=(4.8, 4.4), layout="constrained")
panel.fill_between([0.5, 2], 0.5, 2, color="#eeeeee", label="fails")
panel.scatter(*asked[~failed].T, c=np.flatnonzero(~failed), label="succeeded")
picture = panel.scatter(*asked[failed].T, c=np.flatnonzero(failed), vmin=0, vmax=39, marker="x", label="failed")
figure.colorbar(picture, ax=panel, label="evaluation")
panel.set(title="Where evaluations failed", xlabel="x0", ylabel="x1", xlim=(-2, 2), ylim=(-2, 2))
panel.legend(loc="lower left", fontsize="small")
plt.show()

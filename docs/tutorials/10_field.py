"""
Map a field and plan the next samples
=====================================

You measured a field at some locations. You want a map of the field and its uncertainty. You also want to know where to
take the next samples. This tutorial uses the acidity (pH) of the soil at 126 sites near Oxford. The data come with
swarmbo. Your own data can be a CSV file with two columns of coordinates and one column of values.
"""

# %%
# The data
# --------
# The file has one row for each site. It contains the coordinates in metres and the pH of the topsoil.

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np

import swarmbo as sb
from swarmbo.plotting import applied

path = str(files("swarmbo_envs.fields") / "data" / "oxford_ph.csv")
table = np.genfromtxt(path, delimiter=",", names=True)
places = np.column_stack([table["x_m"], table["y_m"]])
ph = table["ph"]
print(f"{len(ph)} sites on {np.ptp(places[:, 0]):.0f} m by {np.ptp(places[:, 1]):.0f} m, pH {ph.min()} to {ph.max()}")

# %%
# A map from 40 samples
# ---------------------
# We create a team with one agent, the surveyor. ``attach`` gives the team 40 samples. ``aim="map"`` states that later
# samples should improve the map of the whole field. (Other aims are ``peak`` and ``level``.)
#
# The belief of the team is a Gaussian process. For any location, it predicts the pH and a standard deviation. Its
# hyper-parameters, such as the lengthscales, are fitted to the samples. ``refit`` fits them again after further
# samples.

low, high = places.min(axis=0), places.max(axis=0)
rng = np.random.default_rng(0)
known = rng.choice(len(ph), 40, replace=False)


def informed(known: np.ndarray) -> sb.Team:
    """A team that is told the pH at the sites with these indices."""
    team = sb.Team.for_field(["surveyor"], low, high, aim="map", seed=0)
    team.attach(places[known], ph[known])
    return team


team = informed(known)
others = np.setdiff1d(np.arange(len(ph)), known)
mean, variance = team.belief.posterior(places[others])
error = np.sqrt(np.mean((mean - ph[others]) ** 2))
flat = np.sqrt(np.mean((ph[known].mean() - ph[others]) ** 2))
print(f"RMSE at the {len(others)} other sites: map {error:.2f} pH, mean of the samples {flat:.2f} pH")

# %%
# The next eight locations
# ------------------------
# ``ask(8)`` plans eight locations. The team chooses one location after another and treats earlier choices as measured.
# This is possible because the predicted variance does not depend on the measured values. ``candidates`` are the
# locations that the surveyor can visit. Here, they are the sites without a sample.

plan = team.ask(8, {"surveyor": places[others]})
planned = np.array([query.points["surveyor"] for query in plan])
for place in planned:
    mean, variance = team.belief.posterior(place[None])
    print(f"x {place[0]:4.0f} m, y {place[1]:4.0f} m: expected pH {mean[0]:.2f}, std {np.sqrt(variance[0]):.2f}")

# %%
# The left map shows the expected pH. The right map shows its standard deviation. Axes are coordinates in metres.
# Circles are the samples, and crosses are the planned locations.

axes = [np.linspace(low[i], high[i], n) for i, n in enumerate((50, 200))]
lattice = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


def draw(team: sb.Team, known: np.ndarray, planned: np.ndarray) -> None:
    """Draw the map and its standard deviation side by side."""
    mean, variance = team.belief.posterior(lattice)
    with applied():
        figure, panels = plt.subplots(1, 2, figsize=(6.4, 7), layout="constrained")
    for panel, shown, title, colours in (
        (panels[0], mean, "expected pH", "viridis"),
        (panels[1], np.sqrt(variance), "standard deviation (pH)", "magma"),
    ):
        picture = panel.pcolormesh(axes[0], axes[1], shown.reshape(200, 50), cmap=colours, rasterized=True)
        panel.scatter(*places[known].T, s=22, facecolors="none", edgecolors="white", label="sample")
        panel.scatter(*planned.T, s=55, marker="x", color="#ff7f2a", linewidths=2.5, label="planned")
        panel.set(title=title, aspect="equal", xlabel="x (m)", ylabel="y (m)")
        figure.colorbar(picture, ax=panel, shrink=0.6)
    panels[0].legend(loc="upper right", facecolor="#666666", labelcolor="white", framealpha=0.9)


draw(team, known, planned)
plt.show()

# %%
# Take the samples, tell them
# ---------------------------
# You can tell outcomes in any order, and late. If a sample failed, tell ``None``.

site_of = {tuple(place): site for site, place in enumerate(places)}
for query in plan:
    site = site_of[tuple(query.points["surveyor"])]
    team.tell(query, {"surveyor": ph[site]})
team.refit()
mean, variance = team.belief.posterior(places[others])
print(f"RMSE at the same {len(others)} sites: {np.sqrt(np.mean((mean - ph[others]) ** 2)):.2f} pH")

# %%
# The error above is not a fair test. It includes the eight new samples, where the error is small in any case. For a
# fair test, we exclude some sites from sampling.
#
# Does planning pay?
# ------------------
# The answer depends on the field, so we test two fields. One is the soil survey. The other is a coarse elevation model
# of hilly country in Tennessee. We repeat the test with five seeds. In each repetition, some sites are hidden and serve
# as the test. The plan begins with ten random samples of the other sites. We compare it with two simple methods.
# ``random`` samples random sites. ``sweep`` follows a path to and fro over the field and samples in equal steps.

from matplotlib.cbook import get_sample_data

elevation = get_sample_data("jacksboro_fault_dem.npz")["elevation"][::10, ::10].astype(float)
cells = np.stack(np.meshgrid(*(0.3 * np.arange(n) for n in elevation.shape[::-1])), axis=-1).reshape(-1, 2)
fields = {"soil, pH": (places, ph, 40, (10, 20, 30, 40)), "elevation, m": (cells, elevation.ravel(), 300, (10, 30, 60))}


def errors_of(X: np.ndarray, y: np.ndarray, hidden: int, counts: tuple[int, ...], seed: int) -> dict[str, list[float]]:
    """RMSE at the hidden sites for each method, after each number of samples."""
    order = np.random.default_rng(seed).permutation(len(y))
    test, free = order[:hidden], order[hidden:]
    index = {tuple(place): i for i, place in enumerate(X)}

    def team_of(samples: np.ndarray) -> sb.Team:
        team = sb.Team.for_field(["surveyor"], X.min(axis=0), X.max(axis=0), aim="map", seed=0)
        team.attach(X[samples], y[samples])
        team.refit()
        return team

    def error_of(samples: np.ndarray) -> float:
        return float(np.sqrt(np.mean((team_of(samples).belief.posterior(X[test])[0] - y[test]) ** 2)))

    planned, team = list(free[: counts[0]]), team_of(free[: counts[0]])
    while len(planned) < counts[-1]:
        for query in team.ask(5, {"surveyor": X[np.setdiff1d(free, planned)]}):
            planned.append(index[tuple(query.points["surveyor"])])
            team.tell(query, {"surveyor": y[planned[-1]]})
    strip = np.round(7 * (X[free, 1] - X[:, 1].min()) / np.ptp(X[:, 1]))
    path = free[np.lexsort((np.where(strip % 2 == 0, 1, -1) * X[free, 0], strip))]
    return {
        "planned": [error_of(np.array(planned[:count])) for count in counts],
        "random": [error_of(free[:count]) for count in counts],
        "sweep": [error_of(path[np.linspace(0, len(path) - 1, count).round().astype(int)]) for count in counts],
    }


with applied():
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.6), layout="constrained")
for panel, (name, field) in zip(panels, fields.items(), strict=True):
    found = [errors_of(*field, seed) for seed in range(5)]
    for method, style in (("planned", "o-"), ("random", "s--"), ("sweep", "^:")):
        errors = np.array([one[method] for one in found])
        panel.plot(field[3], errors.mean(axis=0), style, label=method)
        panel.fill_between(field[3], errors.min(axis=0), errors.max(axis=0), alpha=0.12)
        print(f"{name:12} {method:8} after {field[3][-1]} samples: {errors[:, -1].mean():.3g} (mean of 5 seeds)")
    panel.set(title=name, xlabel="samples", ylabel="RMSE at hidden sites")
panels[0].legend()
figure.suptitle("Error of the map, 5 seeds: mean and range")
plt.show()

# %%
# The figures show the error of the map at hidden sites against the number of samples. On the elevation model, the plan
# has the smallest mean error after 60 samples. On the soil, the ranges of all three methods overlap. With so few sites,
# random sites and a sweep are about as good as a plan. Try all three on your own data before you rely on a plan.

"""
A wireless network: tune transmit powers
========================================

Six access points on one floor share a channel. More power of an access point raises the rates of its users. It also
disturbs the users of neighbouring access points. A team tunes the powers. It starts from the present powers. First it
maximises the sum of the rates, then a fair utility.
"""

# %%
# The floor
# ---------
# The floor plan states the locations of access points and users in metres. (It can also be a CSV file:
# ``topology={"csv": "office.csv"}``.) Rates are computed by a closed-form model. A rate is Shannon's capacity, with the
# SINR reduced by 10 dB. It is at most 65 Mbit/s. The users of an access point share its time equally. Use these rates
# to compare methods. To judge a network, use ns-3.

import matplotlib.pyplot as plt
import numpy as np
import pettingzoo

import swarmbo as sb
import swarmbo_envs  # registers the environments
from swarmbo.plotting import applied

ACCESS_POINTS = np.array([[15, 20], [60, 20], [85, 35], [140, 20], [165, 40], [215, 25]])
USERS = np.array(
    [
        *([5, 12], [30, 28], [45, 10], [66, 32], [75, 22], [92, 44]),
        *([118, 16], [132, 30], [150, 34], [176, 28], [190, 44], [226, 12]),
    ]
)


def network(utility: str):
    """The environment of the office, with a utility of the users' rates."""
    floor = {"access_points": ACCESS_POINTS.tolist(), "users": USERS.tolist()}
    env = pettingzoo.make("parallel", "swarmbo/wlan_power-v0", topology=floor, utility=utility)
    env.reset(seed=0)
    return env.unwrapped


office = network("sum")
for factor, scope in office.factor_graph()["scopes"].items():
    print(f"{factor} depends on {', '.join(scope)}")

# %%
# A factor is the sum of the rates that one access point delivers to its users. It depends on the power of this access
# point and on the powers of the access points in its range. The team knows this graph and learns a model of each
# factor.
#
# Begin from the present setting
# ------------------------------
# At present, all access points transmit at their maximum of 25 dBm. ``attach`` tells the team this setting and its
# outcome. Then we do 30 steps. In each step, the team asks a setting and is told the outcome of each access point. The
# first nine settings are a design that covers all powers. (The argument ``initial`` of ``Team.for_env`` makes it
# shorter.)

PRESENT = np.full(6, 25.0)


def tune(utility: str, seed: int, settings: int = 30):
    """Tune the powers; return the best powers, and the best utility so far after each setting."""
    office = network(utility)
    factors = list(office.factor_graph()["scopes"])
    team = sb.Team.for_env(office, seed=seed)
    team.attach(PRESENT[None], office.outcomes(PRESENT)[None])
    powers, best = PRESENT, [office.outcomes(PRESENT).sum()]
    for _ in range(settings):
        query = team.ask()
        delivered = office.outcomes(list(query.point.values()))
        team.tell(query, dict(zip(factors, delivered, strict=True)))
        if delivered.sum() > best[-1]:
            powers = np.array(list(query.point.values()))
        best.append(max(best[-1], delivered.sum()))
    return powers, best


tuned = {utility: [tune(utility, seed) for seed in range(2)] for utility in ("sum", "proportional-fair")}
for utility, found in tuned.items():
    simple, best_known = network(utility).references(budget=30), network(utility).best_known()[1]
    print(f"{utility}: {', '.join(f'{best[-1]:.4g}' for _, best in found)} (seeds 0, 1)")
    print(f"   all at maximum {simple['all at maximum']:.4g}, sequential greedy {simple['sequential greedy']:.4g}")
    print(f"   reference optimum, from a long search that sees the formula: {best_known:.4g}")

# %%
# The figures show the best utility so far against the number of settings. The lines named "all at maximum" and
# "sequential greedy" show simple rules with the same number of settings. In sequential greedy, access points choose one
# after another. Each takes the best power, given the earlier choices.

with applied():
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
labels = {"sum": "sum of rates (Mbit/s)", "proportional-fair": "sum of log rates"}
for panel, (utility, found) in zip(panels, tuned.items(), strict=True):
    for seed, (_, best) in enumerate(found):
        panel.plot(best, label=f"team, seed {seed}")
    simple = network(utility).references(budget=30)
    panel.axhline(simple["all at maximum"], color="black", linestyle="--", label="all at maximum")
    panel.axhline(simple["sequential greedy"], color="grey", linestyle=":", label="sequential greedy")
    panel.set(title=f"Best {utility} so far", xlabel="settings tried", ylabel=labels[utility])
panels[1].legend(loc="lower right")
plt.show()

# %%
# Sum or fairness
# ---------------
# The largest sum is reached by silencing some access points. The users of these access points then have rates near
# zero. The utility ``proportional-fair`` sums the logarithms of the rates, so no user is left without a rate. The
# figure shows the cumulative distribution of the users' rates for three settings.

powers = {"present": PRESENT, "sum": tuned["sum"][0][0], "proportional-fair": tuned["proportional-fair"][0][0]}
with applied():
    figure, panel = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for (name, setting), style in zip(powers.items(), ("k--", "-", "-"), strict=True):
    rates = np.sort(office.network.user_capacities(setting[None])[0])
    panel.step(rates, np.arange(1, len(rates) + 1) / len(rates), style, where="post", label=name)
    print(f"{name:17} sum {rates.sum():5.0f} Mbit/s, least {rates[0]:5.2f} Mbit/s, powers {setting.round(1)} dBm")
panel.set(title="Rates of the users", xlabel="rate (Mbit/s)", ylabel="share of users with at most this", xscale="log")
panel.legend()
plt.show()

# %%
# The maps show the signal-to-interference-and-noise ratio (SINR) that a user would have at each location. Such a user
# is served by the access point with the least path loss. Axes are coordinates in metres. Circles are access points, and
# crosses are users. Lines join access points that are in range of each other.

in_range = [[int(name.rpartition("_")[2]) for name in edge] for edge in office.interaction_graph().edges]
disturbs = np.zeros((6, 6))
for one, other in in_range:
    disturbs[one, other] = disturbs[other, one] = 1.0
axes = np.linspace(0, 230, 230), np.linspace(0, 56, 56)
grid = np.stack(np.meshgrid(*axes), axis=-1)
distance = np.maximum(np.linalg.norm(grid[:, :, None] - ACCESS_POINTS, axis=-1), 1.0)
gain = 10 ** (-(46.6777 + 30 * np.log10(distance)) / 10)
noise = 10 ** (-93.99 / 10)
with applied():
    figure, panels = plt.subplots(3, 1, figsize=(7.2, 7.4), layout="constrained")
for panel, (name, setting) in zip(panels, powers.items(), strict=True):
    received = gain * 10 ** (setting / 10)
    server = gain.argmax(axis=-1)
    wanted = np.take_along_axis(received, server[..., None], axis=-1)[..., 0]
    sinr = 10 * np.log10(wanted / (noise + (received * disturbs[server]).sum(axis=-1)))
    picture = panel.pcolormesh(*axes, sinr, vmin=-25, vmax=40, rasterized=True)
    for edge in in_range:
        panel.plot(*ACCESS_POINTS[edge].T, color="white", linewidth=0.8)
    panel.scatter(*ACCESS_POINTS.T, s=8 * setting + 20, color="#d55e00", edgecolors="white", zorder=3)
    panel.plot(*USERS.T, "x", color="white")
    panel.set(title=name, aspect="equal", ylabel="y (m)")
panels[-1].set_xlabel("x (m)")
figure.colorbar(picture, ax=panels, label="SINR (dB)", shrink=0.8)
plt.show()

# %%
# On a live network, only the measurement changes. Set the powers of ``query.point``, measure the rates, and tell them.
# You can tell outcomes late. If a measurement failed, tell ``None``. With ns-3 installed, ``swarmbo run wlan-ns3``
# measures throughput in a packet simulator instead of the closed form.

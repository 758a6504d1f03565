"""
A wireless network: tune transmit powers
========================================

Six access points of one floor share a channel. More power helps the users of one access point and disturbs those of
its neighbours. A team tunes the powers, beginning from the present setting: first for the sum of the rates, then
fairly.
"""

# %%
# The floor
# ---------
# The floor plan states where access points and users are, in metres. (A CSV file does as well:
# ``topology={"csv": "office.csv"}``.) Rates come from a closed form: Shannon's capacity at 10 dB less SINR, at
# most 65 Mbit/s. Users of an access point take turns of equal time. Use these rates to compare
# methods, and ns-3 to judge networks.

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
    """The office, measured by a utility of the users' rates."""
    floor = {"access_points": ACCESS_POINTS.tolist(), "users": USERS.tolist()}
    env = pettingzoo.make("parallel", "swarmbo/wlan_power-v0", topology=floor, utility=utility)
    env.reset(seed=0)
    return env.unwrapped


office = network("sum")
for factor, scope in office.factor_graph()["scopes"].items():
    print(f"{factor} depends on {', '.join(scope)}")

# %%
# A factor is what one access point delivers to its own users. It depends on its own power and on those of the access
# points in its range. The team knows this graph, and learns a model for each factor.
#
# Begin from the present setting
# ------------------------------
# At present all access points transmit at their maximum, 25 dBm. ``attach`` teaches the team that setting and what it
# delivers. Then the team asks for a setting, and is told what each access point delivered: 30 times. The first nine
# settings are spread over all powers to learn from (``initial`` in ``Team.for_env`` makes them fewer).

PRESENT = np.full(6, 25.0)


def tune(utility: str, seed: int, settings: int = 30):
    """The best powers found, and the best utility so far after each setting."""
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


tuned = {utility: [tune(utility, seed) for seed in range(3)] for utility in ("sum", "proportional-fair")}
for utility, found in tuned.items():
    simple, best_known = network(utility).references(budget=30), network(utility).best_known()[1]
    print(f"{utility}: {', '.join(f'{best[-1]:.4g}' for _, best in found)} (seeds 0, 1, 2)")
    print(f"   all at maximum {simple['all at maximum']:.4g}, sequential greedy {simple['sequential greedy']:.4g}")
    print(f"   reference optimum, from a long search that sees the formula: {best_known:.4g}")

# %%
# The dashed lines are simple rules with as many settings: all powers at maximum, and sequential greedy. There each
# access point takes the best power given those before it.

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
# The largest sum comes from silencing access points: their users get next to nothing. Proportional fairness sums
# logarithms of rates, so it gives no user up. The cumulative curves show every user's rate under three settings.

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
# The map shows the signal-to-interference-and-noise ratio (SINR) that a user would have at each place, from the access
# point of least path loss. Circles are access points, lines join those in range of each other, crosses are users.

hears = [[int(name.rpartition("_")[2]) for name in edge] for edge in office.interaction_graph().edges]
disturbs = np.zeros((6, 6))
for one, other in hears:
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
    for edge in hears:
        panel.plot(*ACCESS_POINTS[edge].T, color="white", linewidth=0.8)
    panel.scatter(*ACCESS_POINTS.T, s=8 * setting + 20, color="#d55e00", edgecolors="white", zorder=3)
    panel.plot(*USERS.T, "x", color="white")
    panel.set(title=name, aspect="equal", ylabel="y (m)")
panels[-1].set_xlabel("x (m)")
figure.colorbar(picture, ax=panels, label="SINR (dB)", shrink=0.8)
plt.show()

# %%
# On a live network only your measurements change: set the powers of ``query.point``, measure, and tell. An outcome that
# comes late, or failed, may be told later, or as ``None``. With ns-3 installed, ``swarmbo run wlan-ns3`` measures
# throughput in a packet simulator instead of the closed form.

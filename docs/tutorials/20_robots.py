"""
Robots: find a peak, or make a map
==================================

Four robots drive over a real landscape with two lakes. They have batteries. In the first run, they look for the summit.
In the second run, they map the area. The only difference is the task of the environment. The team chooses its
acquisition by the task.
"""

# %%
# The environment
# ---------------
# ``swarmbo/robot_team-v1`` is a PettingZoo environment. In each round, an agent's action is the location where its
# robot measures next. Robots do not enter ``no_go`` regions. They return to their base before their battery is empty.

import matplotlib.pyplot as plt
import numpy as np
import pettingzoo
from matplotlib.patches import Polygon

import swarmbo as sb
import swarmbo_envs
from swarmbo.plotting import applied

LAKES = [
    [[1500, 3000], [2500, 2200], [3600, 2700], [3900, 4200], [3100, 5600], [1900, 5200]],
    [[5600, 6200], [7000, 5700], [8200, 6500], [7900, 7700], [6300, 7500]],
]
BASES = [[700, 700], [8800, 700], [700, 11200], [8800, 11200]]
print([name for name in swarmbo_envs.register_all() if "robot" in name])


def environment(task: str = "peak"):
    """Four robots on the Jacksboro landscape, 9.5 km by 11.9 km."""
    return pettingzoo.make(
        "parallel",
        "swarmbo/robot_team-v1",
        robots=4,
        task=task,
        no_go=[{"corners": lake} for lake in LAKES],
        bases=BASES,
        battery_s=3000.0,
        noise_std=5.0,
        max_cycles=15,
    )


# %%
# A team in the loop
# ------------------
# ``Team.for_env`` creates a team for the environment. In PettingZoo's usual loop, ``act`` chooses the locations, and
# ``observe`` updates the belief with the measurements.


def run(task: str, seed: int, coordination: str = "exact"):
    """Run one episode; return environment, team, paths, best height so far after each round, and number of messages."""
    env = environment(task)
    team = sb.Team.for_env(env, coordination=coordination, seed=seed)
    observations, infos = env.reset(seed=seed)
    height = env.unwrapped.ground_truth().value
    paths = {agent: [infos[agent]["location"][None]] for agent in env.agents}
    best, messages = [max(height(path)[0] for (path,) in paths.values())], 0
    while env.agents:
        step = env.step(team.act(observations, infos))
        team.observe(*step)
        observations, infos = step[0], step[-1]
        messages += sum(traffic.messages for traffic in team.sent.values())
        for agent, info in infos.items():
            paths[agent].append(info["path"])
        best.append(max(best[-1], *(height(info["location"][None])[0] for info in infos.values())))
    return env, team, {agent: np.concatenate(parts) for agent, parts in paths.items()}, best, messages


def map_error(env, team) -> float:
    """RMSE of the team's map over all locations that robots can reach."""
    truth = env.unwrapped.ground_truth()
    return float(np.sqrt(np.mean((team.belief.posterior(truth.points)[0] - truth.values) ** 2)))


runs = {task: run(task, seed=0) for task in ("peak", "map")}
for task, (env, team, _, best, _) in runs.items():
    below = env.unwrapped.ground_truth().maximum - best[-1]
    print(f"task {task}: best location {below:.0f} m below the summit, error of the map {map_error(env, team):.0f} m")

# %%
# Robots that look for the summit return to high ground. Robots that make a map spread out. The maps show the mean of
# each team's belief. Axes are coordinates in kilometres. Lines are the paths of the robots, squares are the bases, and
# hatched areas are the lakes.


def draw(panel, title: str, env, team, paths):
    """Draw the belief, lakes, bases and paths, in kilometres."""
    box = team.problem.box
    axes = [np.linspace(box.low[i], box.high[i], 80) for i in range(2)]
    mean, _ = team.belief.posterior(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2))
    picture = panel.pcolormesh(axes[0] / 1e3, axes[1] / 1e3, mean.reshape(80, 80), vmin=400, vmax=1000)
    for lake in LAKES:
        panel.add_patch(Polygon(np.array(lake) / 1e3, facecolor="white", edgecolor="black", hatch="///"))
    for (agent, path), colour in zip(paths.items(), ("#d55e00", "#ffffff", "#cc79a7", "#000000"), strict=True):
        panel.plot(*path.T / 1e3, color=colour, linewidth=1.5, label=agent)
    panel.plot(*np.array(BASES).T / 1e3, "s", color="white", markeredgecolor="black")
    panel.set(title=title, aspect="equal", xlabel="x (km)", ylabel="y (km)")
    return picture


with applied():
    figure, panels = plt.subplots(1, 2, figsize=(8, 5), layout="constrained")
for panel, (task, (env, team, paths, _, _)) in zip(panels, runs.items(), strict=True):
    picture = draw(panel, f"task = {task}", env, team, paths)
figure.colorbar(picture, ax=panels, label="expected height (m)", shrink=0.7)
plt.show()

# %%
# How agents agree
# ----------------
# ``coordination`` is the method by which agents choose together. With ``exact``, they exchange messages to find the
# best joint choice from their shortlists of locations. With ``greedy``, the agents choose one after another, and each
# agent knows the earlier choices. With ``independent``, each agent chooses as if it were alone. We run two seeds of
# each method, with the same starts and noise for all methods.

results = {method: [run("peak", seed, method) for seed in range(2)] for method in ("exact", "greedy", "independent")}

with applied():
    figure, panel = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for (method, found), style in zip(results.items(), ("o-", "s--", "^:"), strict=True):
    summit = found[0][0].unwrapped.ground_truth().maximum
    below = summit - np.array([best for *_, best, _ in found])
    panel.plot(below.mean(axis=0), style, label=method)
    errors = [map_error(env, team) for env, team, *_ in found]
    messages = np.mean([sent for *_, sent in found])
    below_at_end = below[:, -1].mean()
    error = np.mean(errors)
    print(f"{method:12} {below_at_end:3.0f} m below the summit, map error {error:.0f} m, {messages:.0f} messages")
panel.set(title="Best location so far, mean of 2 seeds", xlabel="round", ylabel="m below the summit")
panel.legend()
plt.show()

# %%
# Two seeds are too few to rank methods. ``swarmbo sweep`` runs many seeds. ``swarmbo compare`` then prints paired
# differences with confidence intervals::
#
#     swarmbo sweep robots-obstacles --seeds 20 --set coordination.kind=exact,greedy,independent
#     swarmbo compare runs/robots-obstacles

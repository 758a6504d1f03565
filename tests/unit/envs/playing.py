"""Episodes in tests: places as actions, and teams that play to the end."""

import numpy as np


def at(env, *places):
    """Actions that send the agents, in their order, to places."""
    return {agent: np.array(place, dtype=float) for agent, place in zip(env.agents, places, strict=True)}


def played(env, team, seed=0):
    """Let a team play an episode; the infos of each step, as it goes."""
    observations, infos = env.reset(seed=seed)
    while env.agents:
        step = env.step(team.act(observations, infos))
        team.observe(*step)
        observations, infos = step[0], step[-1]
        yield infos

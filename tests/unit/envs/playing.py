"""Helpers for episodes: actions from places, and a team that plays to the end."""

import numpy as np


def at(env, *places):
    """Actions that send each agent, in order, to one of the places."""
    return {agent: np.array(place, dtype=float) for agent, place in zip(env.agents, places, strict=True)}


def played(env, team, seed=0):
    """Let a team play an episode, and yield the infos of each step."""
    observations, infos = env.reset(seed=seed)
    while env.agents:
        step = env.step(team.act(observations, infos))
        team.observe(*step)
        observations, infos = step[0], step[-1]
        yield infos

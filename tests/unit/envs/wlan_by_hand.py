"""Rates of a WLAN's users from the formulas of the documentation, user by user and interferer by interferer."""

import math

import numpy as np

from swarmbo_envs.wlan_power.settings import centre_mhz


def rates_by_hand(env, point):
    """Rate of each user in Mbit/s, and its access point. A point has powers, and perhaps channels and widths."""
    k, s = len(env.possible_agents), env.settings
    powers, parts = point[:k], np.asarray(point[k:], dtype=int).reshape(-1, k)
    widths = [s.widths_mhz[w] for w in parts[1]] if len(parts) > 1 else [s.bandwidth_mhz] * k
    channels = [s.channels[c] for c in parts[0]] if len(parts) else [1] * k
    ends = [(centre_mhz(c, w) - w / 2, centre_mhz(c, w) + w / 2) for c, w in zip(channels, widths, strict=True)]
    received, rates, serving = [], [], []
    for user in env.topology.users:
        loss = [46.6777 + 30 * math.log10(max(math.dist(place, user), 1.0)) for place in env.topology.access_points]
        serving.append(min(range(k), key=loss.__getitem__))
        received.append([10 ** ((power - lost) / 10) for power, lost in zip(powers, loss, strict=True)])
    for own, received_mw in zip(serving, received, strict=True):
        disturbance = 10 ** ((-174 + 10 * math.log10(1e6 * widths[own]) + 7) / 10)
        for j in range(k):
            if j != own and env.network.disturbs[own, j]:
                common = min(ends[j][1], ends[own][1]) - max(ends[j][0], ends[own][0])
                disturbance += max(common, 0.0) / widths[j] * received_mw[j]
        if s.airtime == "full":
            rates.append(widths[own] * math.log2(1 + received_mw[own] / disturbance))
        else:  # 10 dB less, at most the rate of MCS 7, and divided among the users
            fastest = min(widths[own] * math.log2(1 + received_mw[own] / disturbance / 10), 65.0 / 20.0 * widths[own])
            rates.append(fastest / serving.count(own))
    return rates, serving

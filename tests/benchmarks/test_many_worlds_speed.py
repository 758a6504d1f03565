"""Speed of many WLANs in one call, as a ratio to a loop over single worlds in the same run."""

import numpy as np
import pettingzoo
import pytest

import swarmbo_envs  # noqa: F401  registers the worlds
from swarmbo_envs.wlan_power.many import ManyWlans

from .timing import seconds


@pytest.mark.parametrize("noise_std", [0.0, 1.0])
def test_speed_of_many_wlans(benchmark, noise_std):
    copies, arguments = 128, {"worlds": "drawn", "noise_std": noise_std, "max_cycles": 10**6}
    many, single = ManyWlans(**arguments), pettingzoo.make("parallel", "swarmbo/wlan_power-v0", **arguments)
    many.reset(range(copies))
    single.reset(seed=0)
    powers = np.full((copies, 12), 20.0)
    actions = {agent: np.array([20.0]) for agent in single.agents}
    benchmark(many.step, powers)
    loop = copies * seconds(lambda: single.step(actions), number=20)
    benchmark.extra_info["times a loop's speed"] = loop / benchmark.stats.stats.min

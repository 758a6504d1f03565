"""Version 0 of the WLAN, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.simulated_world import as_aec
from swarmbo_envs.wlan_power import WlanPower

parallel_env = WlanPower
raw_env, env = as_aec(WlanPower)

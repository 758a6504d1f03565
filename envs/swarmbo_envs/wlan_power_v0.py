"""Version 0 of the WLAN, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.wlan_power import env as env, parallel_env as parallel_env, raw_env as raw_env

"""Version 0 of the sensor field, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.sensor_field import env as env, parallel_env as parallel_env, raw_env as raw_env

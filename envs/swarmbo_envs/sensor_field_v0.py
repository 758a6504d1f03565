"""Version 0 of the sensor field, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.sensor_field import SensorField
from swarmbo_envs.simulated_world import as_aec

parallel_env = SensorField
raw_env, env = as_aec(SensorField)

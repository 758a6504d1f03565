"""Version 0 of the pushing robots, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.functions.function_world import RobotPush
from swarmbo_envs.simulated_world import as_aec

parallel_env = RobotPush
raw_env, env = as_aec(RobotPush)

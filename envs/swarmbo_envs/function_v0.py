"""Version 0 of the function world, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.functions import FunctionWorld
from swarmbo_envs.simulated_world import as_aec

parallel_env = FunctionWorld
raw_env, env = as_aec(FunctionWorld)

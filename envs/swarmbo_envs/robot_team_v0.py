"""Version 0 of the robot team, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.robot_team import env as env, parallel_env as parallel_env, raw_env as raw_env

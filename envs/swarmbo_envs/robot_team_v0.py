"""Version 0 of the robot team, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.robot_team import RobotTeam
from swarmbo_envs.simulated_world import as_aec

parallel_env = RobotTeam
raw_env, env = as_aec(RobotTeam)

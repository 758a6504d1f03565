"""Version 1 of the robot team, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from swarmbo_envs.robot_team.robot_team import RobotTeamV1
from swarmbo_envs.simulated_world import as_aec

parallel_env = RobotTeamV1
raw_env, env = as_aec(RobotTeamV1)

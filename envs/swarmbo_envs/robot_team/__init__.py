"""A team of driving robots that measures a field."""

from swarmbo_envs.robot_team.robot_team import RobotTeam as RobotTeam

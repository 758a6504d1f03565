"""Robots as bodies with wheels on a terrain, in MuJoCo (extra ``mujoco``), behind the interface of the robot team."""

from swarmbo_envs.robot_team.settings import MujocoSettings as MujocoSettings

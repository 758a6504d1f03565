"""Version 1 of the robot team, in PettingZoo's form of a module with ``parallel_env``, ``env`` and ``raw_env``."""

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo_envs.robot_team.robot_team_v1 import RobotTeamV1

parallel_env = RobotTeamV1


def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment, without checks on the order of calls. Args: those of RobotTeamV1."""
    return parallel_to_aec_wrapper(RobotTeamV1(**arguments))  # pyright: ignore[reportArgumentType]


def env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment that checks the order of calls. Args: those of RobotTeamV1."""
    return OrderEnforcingWrapper(raw_env(**arguments))

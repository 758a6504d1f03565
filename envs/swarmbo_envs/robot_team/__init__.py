"""A team of driving robots that measures a field."""

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo_envs.robot_team.robot_team import RobotTeam as RobotTeam

parallel_env = RobotTeam


def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment, without checks on the order of calls. Args: those of RobotTeam."""
    return parallel_to_aec_wrapper(RobotTeam(**arguments))  # pyright: ignore[reportArgumentType]


def env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment that checks the order of calls. Args: those of RobotTeam."""
    return OrderEnforcingWrapper(raw_env(**arguments))

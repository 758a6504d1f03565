"""Sensors that stand still and look at a field that may change."""

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo_envs.sensor_field.sensor_field import SensorField as SensorField

parallel_env = SensorField


def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment, without checks on the order of calls. Args: those of SensorField."""
    return parallel_to_aec_wrapper(SensorField(**arguments))  # pyright: ignore[reportArgumentType]


def env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment that checks the order of calls. Args: those of SensorField."""
    return OrderEnforcingWrapper(raw_env(**arguments))

"""Test functions as worlds: a library of sums with known maxima, and any function of your own."""

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo_envs.functions.additive_function import AdditiveFunction as AdditiveFunction
from swarmbo_envs.functions.function_world import FunctionWorld as FunctionWorld
from swarmbo_envs.functions.library import FUNCTIONS as FUNCTIONS, get as get

parallel_env = FunctionWorld


def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment, without checks on the order of calls. Args: those of FunctionWorld."""
    return parallel_to_aec_wrapper(FunctionWorld(**arguments))  # pyright: ignore[reportArgumentType]


def env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment that checks the order of calls. Args: those of FunctionWorld."""
    return OrderEnforcingWrapper(raw_env(**arguments))

"""Power control in a WLAN: access points that disturb one another's users."""

from typing import Any

from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo_envs.wlan_power.best_known import best_known as best_known
from swarmbo_envs.wlan_power.network import Network as Network
from swarmbo_envs.wlan_power.references import Reference as Reference, references as references
from swarmbo_envs.wlan_power.utility import Utility as Utility
from swarmbo_envs.wlan_power.wlan_power import WlanPower as WlanPower

parallel_env = WlanPower


def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment, without checks on the order of calls. Args: those of WlanPower."""
    return parallel_to_aec_wrapper(WlanPower(**arguments))  # pyright: ignore[reportArgumentType]


def env(**arguments: Any) -> AECEnv[str, Any, Any]:
    """The world as an AEC environment that checks the order of calls. Args: those of WlanPower."""
    return OrderEnforcingWrapper(raw_env(**arguments))

"""ns-3 as a radio of the WLAN: our own C++ against the wheel that the user installed, in child processes."""

from swarmbo_envs.wlan_power.ns3.children import Children as Children, Failure as Failure
from swarmbo_envs.wlan_power.ns3.radio import Library as Library, Ns3Radio as Ns3Radio

"""Power control in a WLAN: access points that disturb one another's users."""

from swarmbo_envs.wlan_power.network import Network as Network, Utility as Utility
from swarmbo_envs.wlan_power.references import best_known as best_known, references as references
from swarmbo_envs.wlan_power.wlan_power import WlanPower as WlanPower

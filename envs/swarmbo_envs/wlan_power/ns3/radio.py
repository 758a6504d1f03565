"""What ns-3 makes of powers in a WLAN."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo_envs.wlan_power.network import Network
from swarmbo_envs.wlan_power.ns3.children import Children, Failure
from swarmbo_envs.wlan_power.ns3.library import compiled_library
from swarmbo_envs.wlan_power.radio import LOSS_AT_ONE_METRE_DB, LOSS_PER_DECADE_DB
from swarmbo_envs.wlan_power.settings import SimulationSettings
from swarmbo_envs.wlan_power.topology import Topology

_CHILD = Path(__file__).with_name("child.py")


class Ns3Radio:
    """Outcomes of access points by ns-3, which runs in child processes.

    ``capacity`` is that of ``Network`` with the SINR by the powers that ns-3 says arrive. ``throughput`` is the payload
    that arrives at the users of an 802.11n network in the simulated time, with all that the protocol brings: beacons,
    association, carrier sense, rates, acknowledgements, collisions. Every access point always has 1500-byte frames
    waiting for each of its users, and everybody disturbs everybody.

    Args:
        objective: What is measured.
        settings: How it is simulated.

    Raises:
        ConfigError: If ns-3 is not installed, its part cannot be compiled, or it does not start; in one line.
    """

    def __init__(self, objective: Literal["capacity", "throughput"], settings: SimulationSettings) -> None:
        self.objective, self.settings = objective, settings
        library = compiled_library()
        self.version = library.version
        self._children = Children(
            [sys.executable, "-I", str(_CHILD), str(library.path)],
            environment=library.environment,
            processes=settings.processes,
            timeout_s=settings.timeout_s,
            is_answer=_is_answer,
        )
        if (failure := self._children.start()) is not None:
            raise ConfigError(f"ns-3 does not start: {failure.reason}", at="$.radio")

    @property
    def source(self) -> dict[str, Any]:
        """What outcomes come from: ns-3's version, the first of its runs, and of how many they are means."""
        return {"ns3": self.version, "run": self.runs[0], "runs": len(self.runs)}

    @property
    def runs(self) -> list[int]:
        """Numbers of ns-3's runs of which an outcome is the mean; one does where nothing is random."""
        first = self.settings.run
        return [first] if self.objective == "capacity" else list(range(first, first + self.settings.runs))

    def user_rates(
        self,
        network: Network,
        topology: Topology,
        users: Float[np.ndarray, "m 2"],
        powers: Float[np.ndarray, " k"],
    ) -> Float[np.ndarray, "runs m"] | Failure:
        """What each user gets in each run, Mbit/s (0 if gone), or why there is nothing.

        Args:
            network: As it is now.
            topology: Where its access points are, and what stands in the way.
            users: Where its users are (m, 2), m.
            powers: Transmit powers, dBm.
        """
        rates = np.zeros((len(self.runs), len(network.present)))
        if not network.present.any():
            return rates
        question = self._question(network, topology, users, powers)
        for row, answer in zip(rates, self._children.ask([{**question, "run": run} for run in self.runs]), strict=True):
            if isinstance(answer, Failure):
                return answer
            by_user = np.array(answer["mbps"] if self.objective == "throughput" else answer["sinr"], dtype=float)
            if self.objective == "capacity":
                by_user = network.bandwidth_mhz * np.log1p(by_user) / math.log(2.0)
            row[network.present] = by_user
        return rates

    def sinr(
        self,
        network: Network,
        topology: Topology,
        users: Float[np.ndarray, "m 2"],
        powers: Float[np.ndarray, " k"],
    ) -> Float[np.ndarray, " m"] | Failure:
        """Ratio of signal to interference and noise at every user, by the powers that ns-3 says arrive; 0 if gone."""
        sinr = np.zeros(len(network.present))
        if network.present.any():
            question = self._question(network, topology, users, powers) | {
                "objective": "capacity",
                "run": self.settings.run,
            }
            answer = self._children.ask([question])[0]
            if isinstance(answer, Failure):
                return answer
            sinr[network.present] = answer["sinr"]
        return sinr

    def close(self) -> None:
        """End the child processes; the next question starts new ones."""
        self._children.close()

    def _question(
        self,
        network: Network,
        topology: Topology,
        users: Float[np.ndarray, "m 2"],
        powers: Float[np.ndarray, " k"],
    ) -> dict[str, Any]:
        there = network.present
        s = self.settings
        return {
            "objective": self.objective,
            "points": network.n_points,
            "users": int(there.sum()),
            "point_xy": topology.access_points.ravel().tolist(),
            "user_xy": users[there].ravel().tolist(),
            "serving": network.serving[there].tolist(),
            "power_dbm": powers.tolist(),
            "to_users_db": topology.to_users_db[:, there].ravel().tolist(),
            "between_db": topology.between_db.ravel().tolist(),
            "disturbs": network.disturbs.astype(int).ravel().tolist(),
            "loss_at_one_metre_db": LOSS_AT_ONE_METRE_DB,
            "loss_per_decade_db": LOSS_PER_DECADE_DB,
            "noise_dbm": 10.0 * math.log10(network.noise_mw),
            "bandwidth_mhz": network.bandwidth_mhz,
            "user_power_dbm": s.user_power_dbm,
            "warm_up_s": s.warm_up_s,
            "seconds": s.seconds,
        }


def _is_answer(question: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """One number for each user, finite and not negative."""
    values: Sequence[Any] | Any = told.get("mbps" if question["objective"] == "throughput" else "sinr")
    return (
        isinstance(values, list)
        and len(values) == question["users"]
        and all(isinstance(value, int | float) and math.isfinite(value) and value >= 0.0 for value in values)
    )

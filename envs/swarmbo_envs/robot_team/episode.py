"""The state of an episode: everything that changes from round to round, and how it is written down."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.errors import StateVersionError

_VERSION = 1


@dataclass
class Episode:
    """Where the team stands.

    Args:
        seed: Of all randomness since the last reset that gave one.
        number: Episodes since that reset; each has its own randomness.
        round: Rounds driven so far.
        running: Whether the episode goes on.
        poses: (x, y, heading) of each robot.
        last: Last good measurement of each robot; NaN while there is none.
        measured: Which of the field's sites were measured; used only where nothing lies between the sites.
        trails: Per robot, points of the path driven so far.
        samples: Per measurement so far: robot, x, y, measurement.
    """

    seed: int
    number: int
    round: int
    running: bool
    poses: Float[np.ndarray, "robots 3"]
    last: Float[np.ndarray, " robots"]
    measured: Bool[np.ndarray, " k"]
    trails: list[Float[np.ndarray, "points 2"]]
    samples: Float[np.ndarray, "n 4"]

    def to_state(self, field: str) -> dict[str, Any]:
        """Plain JSON and arrays.

        Args:
            field: Name of the field, to recognise it.
        """
        return {
            "json": {
                "version": _VERSION,
                "field": field,
                "robots": len(self.poses),
                "seed": self.seed,
                "number": self.number,
                "round": self.round,
                "running": self.running,
            },
            "arrays": {
                "poses": self.poses.copy(),
                "last": self.last.copy(),
                "measured": self.measured.copy(),
                "samples": self.samples.copy(),
                "trail_ends": np.cumsum([len(trail) for trail in self.trails]),
                "trails": np.concatenate(self.trails),
            },
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], field: str, robots: int, n_sites: int) -> "Episode":
        """The episode that was written down.

        Args:
            state: From ``to_state``.
            field: Name of the field of the world that takes it.
            robots: Number of robots there.
            n_sites: Number of candidate sites there.

        Raises:
            StateVersionError: If the state was written by another version, or in another world.
        """
        plain, arrays = state["json"], {name: np.array(array) for name, array in state["arrays"].items()}
        if plain.get("version") != _VERSION:
            raise StateVersionError(f"got a robot-team state of version {plain.get('version')}; wanted {_VERSION}")
        got = (plain["field"], plain["robots"], len(arrays["measured"]))
        if got != (field, robots, n_sites):
            raise StateVersionError(
                f"got a state of {got[1]} robots on {got[0]!r} with {got[2]} sites; "
                f"wanted one of {robots} robots on {field!r} with {n_sites}: use the same arguments"
            )
        return cls(
            seed=plain["seed"],
            number=plain["number"],
            round=plain["round"],
            running=plain["running"],
            poses=arrays["poses"],
            last=arrays["last"],
            measured=arrays["measured"],
            trails=np.split(arrays["trails"], arrays["trail_ends"][:-1]),
            samples=arrays["samples"],
        )

"""Small environments of each kind, in the form that PettingZoo's tests need."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete

SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}
TRIANGLE = {"access_points": [[0, 0], [60, 0], [30, 50]], "users": [[5, 5], [40, 0], [30, 40]], "serving": [0, 1, 1]}
_COLUMNS = {"x": "x", "y": "y", "value": "v"}
_ENERGY = {"sensors": 5, "energy_price": 0.3, "sample_energy_j": 0.5, "noise_std": 0.1}
_SITES = {"field": {"csv": "", **_COLUMNS, "sites": "only"}, "round_time_s": 60.0, "noise_std": 0.1}
_MAP = {"csv": "", **_COLUMNS, "sites": "interpolated"}
_DRAWN = {"field": {"gp": {"lengthscale_m": 400.0, "size_m": [900, 700]}}, "max_sites": 100}
_WATER = [{"corners": [[300, 0], [500, 0], [450, 500]]}, {"corners": [[600, 500], [800, 550], [650, 600]]}]
_LIMITS = {"battery_s": 400.0, "separation_m": 20.0, "wind": [0.5, -0.3], "no_go": _WATER, "route_cells": 40}
_YARD = {"gp": {"lengthscale_m": 80.0, "size_m": [90, 70]}}
_ROVERS = {"speed_m_s": 2.0, "physics": {"mujoco": {"rover_m": 1.0, "terrain_cells": 32, "step_s": 0.02}}}
_ROVERS |= {"round_time_s": 5.0, "battery_s": 60.0, "separation_m": 3.0, "samples_per_leg": 1, "robots": 2}
WORLDS: dict[str, dict[str, dict[str, Any]]] = {
    "robot_team": {
        "elevation": {"field": {"elevation": "jacksboro", "window": [0, 0, 20, 20]}, "noise_std": 3.0},
        "only": _SITES,
        "interpolated": {"field": _MAP, "noise_std": 0.1, "travel_cost": 0.01},
        "gp": {**_DRAWN, "task": "map"},
    },
    "robot_team_v1": {
        "lake, island and batteries": {**_DRAWN, **_LIMITS, "robots": 4, "task": "level", "level": 0.1},
        "only": {**_SITES, "no_go": [{"corners": [[25, 25], [75, 25], [75, 85], [25, 85]]}], "battery_s": 80.0},
        "mujoco": {**_ROVERS, "field": _YARD, "max_sites": 100, "no_go": [{"corners": [[40, 20], [50, 20], [45, 40]]}]},
    },
    "sensor_field": {
        "moving gp": {**_ENERGY, "field": {"gp": {"size_m": [900, 700], "time": {}}}},
        "plume": {**_ENERGY, "field": {"plume": {}}, "task": "level", "level": 20.0, "battery_j": 2.0},
        "series": {**_ENERGY, "field": {"csv": "", **_COLUMNS, "time": "t", "sites": "only"}, "task": "peak"},
    },
    "function": {
        "totals": {"function": "powell", "parameters": {"n_variables": 8}, "noise_std": 1.0},
        "per factor": {"function": "camel", "outcomes": "per-factor", "relative_noise": 0.01},
        "hidden": {"function": "michalewicz", "parameters": {"n_variables": 4}, "structure": "hidden"},
        "few agents": {"function": "rastrigin", "parameters": {"n_variables": 20}, "agents": 2, "moved": True},
    },
    "robot_push": {"pushes": {"variables": 4, "function_seed": 2}, "pairs": {"variables": 14, "noise_std": 0.1}},
    "wlan_power": {
        "per factor": {"topology": SMALL, "noise_std": 3.0},
        "totals": {"topology": SMALL, "outcomes": "total", "noise_std": 3.0},
        "all interfere": {"topology": SMALL, "interference": "all", "shadowing_db": 4.0},
        "users move and leave": {"mobility_m": 5.0, "leave_rate": 0.1, "return_rate": 0.3, "departures": [[2, 7]]},
        "an access point without users": {"topology": TRIANGLE, "noise_std": 1.0},
        "channels and widths": {"topology": SMALL, "channels": [36, 40, 44, 48], "widths_mhz": [20, 40]},
    },
}


def worlds(*names: str) -> list[Any]:
    """Parameters for all small environments of modules. The second one of a module is `thorough`, later ones `slow`."""
    return [_parameter(name, which, n) for name in names or WORLDS for n, which in enumerate(WORLDS[name])]


def kinds(*names: str) -> list[Any]:
    """Parameters for properties of a module: the first small environment of each module."""
    return [_parameter(name, next(iter(WORLDS[name])), 0) for name in names or WORLDS]


def _parameter(name: str, which: str, index: int) -> Any:
    marks = [] if not index else [pytest.mark.thorough if index == 1 else pytest.mark.slow]
    if package := {"mujoco": "mujoco", "pushes": "Box2D", "pairs": "Box2D"}.get(which):
        is_there = importlib.util.find_spec(package) is not None
        marks.append(pytest.mark.skipif(not is_there, reason=f"needs the extra `{package.lower()}`"))
    return pytest.param((name, which), marks=marks)


class SmallWorld:
    """A versioned module with the arguments of a small environment, which further arguments replace."""

    def __init__(self, name: str, which: str, folder: Path) -> None:
        self.name, _, version = name.partition("_v")
        self.version = version or "0"
        self.arguments = dict(WORLDS[name][which])
        if "csv" in self.arguments.get("field", {}):
            self.arguments["field"] = {**self.arguments["field"], "csv": str(_measured(folder))}
        self._module = importlib.import_module(f"swarmbo_envs.{self.name}_v{self.version}")

    def parallel_env(self, **more: Any) -> Any:
        return self._module.parallel_env(**{**self.arguments, **more})

    def env(self, **more: Any) -> Any:
        return self._module.env(**{**self.arguments, **more})


def _measured(folder: Path) -> Path:
    rows = [(x, y, np.sin(x / 9) + y / 50) for x in range(0, 120, 10) for y in range(0, 120, 10)]
    path = folder / "grid.csv"
    path.write_text("\n".join(["x,y,v,t", *[f"{x},{y},{v + t},{t}" for x, y, v in rows for t in (0, 4)]]))
    return path


def random_actions(env: Any, generator: np.random.Generator) -> dict[str, Any]:
    return {agent: _drawn(env.action_space(agent), generator) for agent in env.agents}


def _drawn(space: Any, generator: np.random.Generator) -> Any:
    if isinstance(space, Dict):
        return {name: _drawn(part, generator) for name, part in space.items()}
    return generator.integers(space.n) if isinstance(space, Discrete) else generator.uniform(space.low, space.high)

"""Names that users give are shown as they are: a dollar in them begins no formula, a broken one neither."""

import numpy as np
import pytest

from swarmbo_envs import function_v0, robot_team_v0, sensor_field_v0
from swarmbo_envs.functions import AdditiveFunction

NAME = r"$\nothing{ cost"


def field(folder):
    path = folder / f"{NAME}.csv"
    path.write_text(f"x,y,{NAME}$\n" + "".join(f"{x},{y},{x + y}\n" for x in (0, 50) for y in (0, 50, 100)))
    return {"csv": str(path), "x": "x", "y": "y", "value": f"{NAME}$", "unit": r"$\frac$"}


@pytest.mark.parametrize("world", ["robots", "sensors", "function"])
def test_dollars_in_names_and_units_are_drawn(world, tmp_path):
    if world == "function":
        function = AdditiveFunction.from_callable(lambda x: x, {"x": (0.0, 1.0)}, name=NAME + "$")
        env = function_v0.parallel_env(function=function, render_mode="rgb_array")
    else:
        make = robot_team_v0 if world == "robots" else sensor_field_v0
        env = make.parallel_env(field=field(tmp_path), render_mode="rgb_array", **{world: 2})
    env.reset(seed=0)
    assert np.ptp(env.render()) == 255

"""The world of pushing robots: a function world of their commands."""

from typing import Any, Literal

from swarmbo_envs.functions.function_world import FunctionSettings, FunctionWorld


class RobotPushSettings(FunctionSettings, frozen=True):
    """Arguments of the world of pushing robots; see ``RobotPush``."""

    function: Literal["push"] = "push"
    variables: Literal[3, 4, 14] = 3


class RobotPush(FunctionWorld, arguments=RobotPushSettings, name="robot_push_v0"):
    """Robots push round objects towards goals: a ``FunctionWorld`` of ``swarmbo_envs.functions.push``.

    One agent has 3 or 4 variables. With 14 there are two agents with seven commands each; the structure is hidden. The
    world's other arguments, its spaces and infos are those of ``FunctionWorld``. Needs the extra box2d.

    Args:
        variables: 3, 4 or 14.
        function_seed: Seed of the goal, for 3 and 4.
        **settings: As of ``FunctionWorld``.

    Raises:
        ConfigError: If an argument is wrong.
        MissingPackageError: Without Box2D.
    """

    def __init__(self, **settings: Any) -> None:
        pair: dict[str, Any] = {"structure": "hidden", "agents": 2} if settings.get("variables") == 14 else {}
        given = {**pair, **settings}
        stated: RobotPushSettings = self._settings_of(given)  # pyright: ignore[reportAssignmentType]
        made: dict[str, Any] = {**given, "function": "push", "parameters": {"n_variables": stated.variables}}
        super().__init__(**made)

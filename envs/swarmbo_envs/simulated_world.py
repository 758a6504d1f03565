"""What all worlds have in common: boxes of actions and observations, an episode that was begun, and ways to show it."""

import sys
from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
import msgspec
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from swarmbo.errors import ConfigError
from swarmbo.settings import convert

Array = NDArray[np.float64]
Infos = dict[str, dict[str, Any]]
EpisodeKind = TypeVar("EpisodeKind")


class WorldSettings(Protocol):
    """What the settings of every world have."""

    @property
    def max_cycles(self) -> int:
        """Rounds of an episode."""
        ...

    @property
    def render_mode(self) -> str | None:
        """How it is shown."""
        ...


SettingsKind = TypeVar("SettingsKind", bound=WorldSettings)


class SimulatedWorld(ParallelEnv[str, Array, Array], ABC, Generic[SettingsKind, EpisodeKind]):
    """A ``ParallelEnv`` whose agents have boxes. A subclass sets these, begins and steps episodes, and draws them.

    Args:
        settings: Of the world, frozen.
        agents: Names of all agents.
    """

    _action_spaces: dict[str, gymnasium.spaces.Box]
    _observation_spaces: dict[str, gymnasium.spaces.Box]

    def __init__(self, settings: SettingsKind, agents: list[str]) -> None:
        self.settings = settings
        self.render_mode = settings.render_mode
        self.possible_agents = agents
        self.agents: list[str] = []
        self._episode: EpisodeKind | None = None

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The box of an agent's observations; the same object on each call."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The box of an agent's actions; the same object on each call."""
        return self._action_spaces[agent]

    @property
    def max_cycles(self) -> int:
        """Rounds of an episode; setting it changes the settings."""
        return self.settings.max_cycles

    @max_cycles.setter
    def max_cycles(self, value: int) -> None:
        settings: Any = self.settings
        self.settings = convert({**msgspec.structs.asdict(settings), "max_cycles": value}, type(settings))
        self._settings_changed()

    def render(self) -> Any:
        """A picture (height, width, 3) of bytes, a text, or (``human``) nothing: the text goes to the terminal."""
        self._current()
        if self.render_mode is None:
            raise ConfigError("got None; wanted 'rgb_array', 'ansi' or 'human' to render", at="$.render_mode")
        if self.render_mode == "rgb_array":
            return self._picture()
        if self.render_mode == "ansi":
            return self._text()
        self._show_to_human()
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def _settings_changed(self) -> None:
        """Make anew what was made of the settings."""

    @abstractmethod
    def _picture(self) -> NDArray[np.uint8]:
        """The episode as an image (height, width, 3)."""

    @abstractmethod
    def _text(self) -> str:
        """The episode in words."""

    def _show_to_human(self) -> None:
        if self.render_mode == "human":
            sys.stdout.write(self._text())

    def _current(self) -> EpisodeKind:
        if self._episode is None:
            raise ResetNeeded("call reset() first")
        return self._episode

"""What all worlds have in common: boxes of actions and observations, rounds of an episode, its state and its looks."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import gymnasium
import msgspec
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import ArrayLike, NDArray
from pettingzoo import ParallelEnv

from swarmbo.errors import ConfigError
from swarmbo.settings import Settings, convert
from swarmbo_envs.actions import checked_actions
from swarmbo_envs.episodes import WorldEpisode, seed_and_number
from swarmbo_envs.saved_state import SavedState, to_state

Array = NDArray[np.float64]
Infos = dict[str, dict[str, Any]]
EpisodeKind = TypeVar("EpisodeKind", bound=WorldEpisode)


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
    """A ``ParallelEnv`` whose agents have boxes.

    A subclass sets these, and says how an episode begins, what happens in a round, what agents see, and how that looks.

    Args:
        settings: Of the world, frozen.
        agents: Names of all agents.
    """

    __signature__: ClassVar[inspect.Signature | None]
    _action_in_words: ClassVar[str]  # its coordinates, for messages: ``[x, y]``
    _states: ClassVar[tuple[str, int]]  # what ``get_state`` writes down, in words, and the version of its form
    _action_spaces: dict[str, gymnasium.spaces.Box]
    _observation_spaces: dict[str, gymnasium.spaces.Box]

    def __init_subclass__(cls, arguments: type[Settings] | None = None) -> None:
        """Note the settings that a world's arguments are: help shows them, with their defaults, which stand once."""
        super().__init_subclass__()
        if arguments is not None:
            found = inspect.signature(arguments).parameters.values()
            cls.__signature__ = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in found])
        elif "__init__" in vars(cls):
            cls.__signature__ = None  # one of its own

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

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Array], Infos]:
        """Begin an episode.

        Args:
            seed: Of all that is random in it, >= 0. None goes on to the next episode of the last seed given; the very
                first episode without any seed is random.
            options: Not used.

        Returns:
            Observations, and infos with what agents measured at once, in worlds where they do.

        Raises:
            ConfigError: If the seed is no integer >= 0.
        """
        self._episode = episode = self._begin(*seed_and_number(seed, self._episode))
        self.agents = self.possible_agents.copy()
        infos = self._first_infos(episode)
        self._show_to_human()
        return self._observe(episode), infos

    def step(
        self, actions: Mapping[str, ArrayLike]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Play one round.

        Args:
            actions: One for each live agent, in its space.

        Returns:
            Observations, rewards, terminations, truncations and infos. All empty once the episode is over, when no
            agent is live and ``actions`` must be empty too.

        Raises:
            ConfigError: If a live agent's action is missing, has another shape, is not finite or lies outside its
                space, or an action is for an agent that is not live, as none is once the episode is over.
        """
        episode, agents = self._current(), self.agents
        asked = checked_actions(actions, agents, self._action_spaces, self._action_in_words)
        if not agents:
            return {}, {}, {}, {}, {}
        episode.round += 1
        infos, rewards = self._play(episode, asked)
        over = episode.round >= self.max_cycles
        observations = self._observe(episode)
        if over:
            episode.running, self.agents = False, []
        self._show_to_human()
        return observations, rewards, dict.fromkeys(agents, False), dict.fromkeys(agents, over), infos

    def get_state(self) -> dict[str, Any]:
        """Everything that changes, as ``{"json": ..., "arrays": ...}``; ``set_state`` continues from it exactly."""
        episode = self._current()
        return to_state(episode, self._states[1], self._description(), self._arrays(episode))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that an environment with the same arguments wrote.

        Args:
            state: From ``get_state``.

        Raises:
            StateVersionError: If it was written by another version or with other arguments (the message says which), if
                a file of data has other ones now, or if it is not a whole state. This environment stays as it was.
        """
        self._episode = episode = self._read(SavedState(state, *self._states, self._description()))
        self.agents = self.possible_agents.copy() if episode.running else []

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
    def _begin(self, seed: int, number: int) -> EpisodeKind:
        """The episode of a seed and a number, in which nothing has happened yet."""

    def _first_infos(self, episode: EpisodeKind) -> Infos:
        """What agents are told when it begins; nothing, unless they measure at once."""
        return {agent: {} for agent in self.agents}

    @abstractmethod
    def _play(self, episode: EpisodeKind, asked: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        """One round, written into the episode: infos and rewards of live agents, given their actions."""

    @abstractmethod
    def _observe(self, episode: EpisodeKind) -> dict[str, Array]:
        """What every agent sees."""

    @abstractmethod
    def _description(self) -> dict[str, Any]:
        """What makes this world what it is, as plain JSON."""

    def _arrays(self, episode: EpisodeKind) -> dict[str, Any]:
        """What the world adds to an episode, as a state has it."""
        added = [field.name for field in fields(episode) if field.name not in WorldEpisode.__dataclass_fields__]
        return {name: getattr(episode, name) for name in added}

    @abstractmethod
    def _read(self, saved: SavedState) -> EpisodeKind:
        """The episode that was written down."""

    @abstractmethod
    def _picture(self) -> NDArray[np.uint8]:
        """The episode as an image (height, width, 3)."""

    @abstractmethod
    def _text(self) -> str:
        """The episode in words."""

    def _number_of(self, agent: str) -> int:
        if agent not in self._observation_spaces:
            raise ConfigError(f"got {agent!r}; wanted one of {self.possible_agents}", at="$.agent")
        return self.possible_agents.index(agent)

    def _show_to_human(self) -> None:
        if self.render_mode == "human":
            sys.stdout.write(self._text())

    def _current(self) -> EpisodeKind:
        if self._episode is None:
            raise ResetNeeded("call reset() first")
        return self._episode


def plain(value: Any) -> Any:
    """Numbers and arrays of numpy, however deep, as Python's own."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

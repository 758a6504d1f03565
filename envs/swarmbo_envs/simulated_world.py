"""Base class of all worlds: spaces, rounds of an episode, saved state and rendering; subclasses give the rules."""

import inspect
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import gymnasium
import msgspec
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from pettingzoo import ParallelEnv
from pettingzoo.utils import OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.env import AECEnv

from swarmbo.boundary import rng
from swarmbo.boundary.values import plain, real_array, short, table, whole_number
from swarmbo.errors import ConfigError
from swarmbo.settings import Count, NoiseStd, Probability, Settings, convert
from swarmbo_envs.saved_state import EpisodeKind, Plain, SavedState, WorldEpisode

LARGEST = 1e12  # measurements in observations are clipped to this size

Array = NDArray[np.float64]
Bounds = tuple[ArrayLike, ArrayLike]  # low and high end of a box
Space = gymnasium.Space[Any]
Spaces = Mapping[str, Bounds | Space]
Infos = dict[str, dict[str, Any]]


class WorldSettings(Settings, frozen=True):
    """Settings that every world has; the meaning of most is in the docstrings of the worlds.

    Args:
        reward: Reward of an agent for a round, less its own cost: ``task``: an equal share of the increase of the score
            of the team's task, or of the utility; ``team``: an equal share of the sum of all measurements; ``own``: its
            own measurement.
        worlds: ``fixed``: every episode is in the same world; ``drawn``: each reset draws another one of the family.
    """

    noise_std: NoiseStd = 0.0
    failure_rate: Probability = 0.0
    max_cycles: Count = 25
    reward: Literal["task", "team", "own"] = "task"
    worlds: Literal["fixed", "drawn"] = "fixed"
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None


SettingsKind = TypeVar("SettingsKind", bound=WorldSettings)


class SimulatedWorld(ParallelEnv[str, Any, Any], ABC, Generic[SettingsKind, EpisodeKind]):
    """Base of all worlds; a subclass states ``arguments`` (settings) and ``name``, and sets the attributes below."""

    __signature__: ClassVar[inspect.Signature | None]
    _arguments: ClassVar[Any]  # the type of its settings
    _action_in_words: ClassVar[str]  # its coordinates, for messages: ``[x, y]``
    _state_format: ClassVar[tuple[str, int]]  # name of the saved state's content, and its format version
    _action_spaces: dict[str, Space]
    _observation_spaces: dict[str, Space]
    _world_number: int | None = None  # number of the current world, if worlds are drawn

    def __init_subclass__(cls, arguments: type[Settings] | None = None, name: str = "") -> None:
        """Derive the signature from the settings, so that help shows arguments and defaults."""
        super().__init_subclass__()
        if name:
            modes = ["rgb_array", "ansi", "human"]
            cls.metadata = {"name": name, "render_modes": modes, "is_parallelizable": True, "render_fps": 4}
        if arguments is not None:
            cls._arguments = arguments
            parameters = inspect.signature(arguments).parameters.values()
            cls.__signature__ = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in parameters])
        elif "__init__" in vars(cls):
            cls.__signature__ = None  # its own __init__ has the signature

    def __init__(self, settings: SettingsKind, agents: list[str]) -> None:
        self.settings = settings
        self.render_mode = settings.render_mode
        self.possible_agents = agents
        self.agents: list[str] = []
        self._episode: EpisodeKind | None = None

    @classmethod
    def _settings_of(cls, arguments: Mapping[str, Any]) -> SettingsKind:
        return convert(plain(arguments), cls._arguments)

    def _set_spaces(self, actions: Spaces, observations: Spaces, state: Bounds) -> None:
        self._action_spaces = {agent: space_of(space) for agent, space in actions.items()}
        self._observation_spaces = {agent: space_of(space) for agent, space in observations.items()}
        self.state_space = space_of(state)

    def observation_space(self, agent: str) -> Space:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Observation space of an agent; the same object on each call."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Space:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Action space of an agent; the same object on each call."""
        return self._action_spaces[agent]

    @property
    def max_cycles(self) -> int:
        """Rounds of an episode; setting it changes the settings."""
        return self.settings.max_cycles

    @max_cycles.setter
    def max_cycles(self, value: int) -> None:
        settings: Any = self.settings
        self.settings = convert({**msgspec.structs.asdict(settings), "max_cycles": value}, type(settings))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Infos]:
        """Begin an episode.

        Args:
            seed: Seed of the episode's randomness, >= 0. None begins the next episode of the last seed given, or a
                random one if none was given.
            options: ``{"world": number}`` picks one of the drawn worlds; by default the seed does.

        Returns:
            Observations, and infos with the first measurements in worlds that measure on reset.

        Raises:
            ConfigError: If options are no table, seed or world no integer >= 0, or a world picked though fixed.
        """
        given = {} if options is None else table(options, '{"world": number}', "$.options")
        last, world_number = self._episode, given.get("world")
        if seed is not None:
            seed, number = whole_number(seed, 0, "$.seed"), 0
        else:
            seed, number = (secrets.randbits(62), 0) if last is None else (last.seed, last.number + 1)
        if self.settings.worlds == "drawn":
            default = rng.stream(seed, "world", episode=number).integers(2**31).item()
            self._enter_world(default if world_number is None else whole_number(world_number, 0, "$.options.world"))
        elif world_number is not None:
            raise ConfigError(f"got {short(world_number)}; wanted no world, or worlds = 'drawn'", at="$.options.world")
        self._episode = episode = self._begin(seed, number)
        self.agents = self.possible_agents.copy()
        infos = self._initial_infos(episode)
        self._show_to_human()
        return self._observe(episode), infos

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Play one round.

        Args:
            actions: Action of each live agent, in its space.

        Returns:
            Observations, rewards, terminations, truncations and infos. All are empty once the episode is over;
            ``actions`` must be empty then too.

        Raises:
            ConfigError: If a live agent's action is missing, not finite, of a wrong shape or outside its space.
                Also if an action is for an agent that is not live.
        """
        episode, agents = self._current(), self.agents
        checked = self._checked_actions(actions, agents)
        if not agents:
            return {}, {}, {}, {}, {}
        # the number rises before the round is played: it names the round's noise, and 0 is the reset
        episode.round += 1
        infos, rewards = self._play(episode, checked)
        over = episode.round >= self.max_cycles
        # PettingZoo wants last observations of agents that end: observe while all are live
        observations = self._observe(episode)
        if over:
            episode.running, self.agents = False, []
        self._show_to_human()
        return observations, rewards, dict.fromkeys(agents, False), dict.fromkeys(agents, over), infos

    def _checked_actions(self, actions: Mapping[str, Any], agents: list[str]) -> dict[str, Array]:
        """Check the actions of live agents, and return them in agent order as vectors; parts of a table are joined."""
        for agent in table(actions, "{agent: action}", "$.actions"):
            if agent not in agents:
                got = "got an action, but this agent is not live"
                raise ConfigError(f"{got}; live agents: {agents}", at=f"$.actions.{agent}")
        for agent in agents:
            if agent not in actions:
                raise ConfigError("got no action; wanted one per live agent", at=f"$.actions.{agent}")
        spaces, what = self._action_spaces, self._action_in_words
        return {agent: _checked(actions[agent], spaces[agent], f"$.actions.{agent}", what) for agent in agents}

    def get_state(self) -> dict[str, Any]:
        """All state that changes, as ``{"json": ..., "arrays": ...}``; ``set_state`` continues from it exactly."""
        episode = self._current()
        arrays = self._arrays(episode) | ({} if self._world_number is None else {"world": self._world_number})
        progress = episode.seed, episode.number, episode.round, episode.running
        content = msgspec.to_builtins(Plain(self._state_format[1], self._description(), *progress))
        return {"json": content, "arrays": {name: np.array(array) for name, array in arrays.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that an environment with the same arguments saved.

        Raises:
            StateVersionError: If the state is incomplete, or was saved by another version, with other arguments or with
                other data files; this environment is then unchanged.
        """
        # read as a whole first: a state that is refused leaves this environment as it was
        saved, present = SavedState(state, *self._state_format, self._description()), self._world_number
        try:
            if self.settings.worlds == "drawn":
                self._enter_world(saved.array("world", "i", ()).item())
            self._episode = episode = self._read(saved)
        except BaseException:
            if present is not None:
                self._enter_world(present)
            raise
        self.agents = self.possible_agents.copy() if episode.running else []

    def _set_query(self, number: int) -> None:
        """Set the round, which names the noise of the next outcome, to the number of a query, >= 1."""
        episode = self._current()
        number = whole_number(number, 1, "$.number")
        episode.round, episode.running, self.agents = number - 1, True, self.possible_agents.copy()

    def state(self) -> Array:
        """Concatenated observations of all agents."""
        return np.concatenate(list(self._observe(self._current()).values()))

    def render(self) -> Any:
        """Picture of bytes (height, width, 3) or text; None with ``human``, which writes the text to the terminal."""
        self._current()
        if self.render_mode is None:
            raise ConfigError("got None; wanted 'rgb_array', 'ansi' or 'human' to render", at="$.render_mode")
        self._show_to_human()
        if self.render_mode == "human":
            return None
        return self._picture() if self.render_mode == "rgb_array" else self._text()

    def _enter_world(self, number: int) -> None:
        """Draw the world of a number, unless it is the current one."""
        if number != self._world_number:
            self._draw(number)
            self._world_number = number

    @abstractmethod
    def _draw(self, number: int) -> None:
        """Replace the world by another one of its family, with the same agents and spaces."""

    @abstractmethod
    def _begin(self, seed: int, number: int) -> EpisodeKind:
        """Begin the episode of a seed and a number."""

    def _initial_infos(self, episode: EpisodeKind) -> Infos:
        """Infos at the beginning; empty unless agents measure at once."""
        return {agent: {} for agent in self.agents}

    @abstractmethod
    def _play(self, episode: EpisodeKind, actions: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        """Play one round, updating the episode; return infos and rewards of live agents."""

    @abstractmethod
    def _observe(self, episode: EpisodeKind) -> dict[str, Any]:
        """Observation of every agent."""

    def _rewards(self, infos: Infos, task_gain: float) -> dict[str, float]:
        """Rewards of a round: own measurements, or equal shares of their sum or of the task's gain, less own costs."""
        own = {agent: info.get("measurement", 0.0) for agent, info in infos.items()}
        if getattr(self.settings, "outcomes", "") == "total":  # all measure the same total
            own = {agent: outcome / len(own) for agent, outcome in own.items()}
        if self.settings.reward != "own":
            total = task_gain if self.settings.reward == "task" else sum(own.values())
            own = dict.fromkeys(own, total / len(own))
        return {agent: outcome - infos[agent]["cost"] for agent, outcome in own.items()}

    def _description(self) -> dict[str, Any]:
        """Identity of this world as plain JSON, here its settings; a state can be set only in an identical world."""
        settings: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.settings))  # lists, no tuples
        del settings["render_mode"]
        return settings

    def _arrays(self, episode: EpisodeKind) -> dict[str, Any]:
        return {name: value for name, value in vars(episode).items() if name not in WorldEpisode.__annotations__}

    def _read(self, saved: SavedState) -> EpisodeKind:
        """Read a saved episode; a new episode gives the shapes of the arrays."""
        episode = self._begin(saved.plain.seed, saved.plain.number)
        return saved.restore(episode, self._arrays(episode))

    @abstractmethod
    def _picture(self) -> NDArray[np.uint8]:
        """Draw the episode as an image (height, width, 3)."""

    @abstractmethod
    def _text(self) -> str:
        """Describe the episode in words."""

    @staticmethod
    def _with_last_measurement(own: Bounds, after: Bounds = ((), ())) -> tuple[Array, Array]:
        """Bounds of observations of functions: own values, last good measurement, share of rounds left, ``after``."""
        low, high = (np.concatenate(parts) for parts in zip(own, ([-LARGEST, 0.0], [LARGEST, 1.0]), after, strict=True))
        return low, high

    @staticmethod
    def _shown(last: Array) -> Array:
        """Last good measurements for observations: the lower bound while there is none."""
        return np.clip(np.nan_to_num(last, nan=-LARGEST), -LARGEST, LARGEST)

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


def as_aec(world: Callable[..., Any]) -> tuple[Callable[..., AECEnv[str, Any, Any]], Callable[..., Any]]:
    """Make ``raw_env`` and ``env`` of a module: a world as an AEC environment, without and with order checks."""

    def raw_env(**arguments: Any) -> AECEnv[str, Any, Any]:
        """Make the world as an AEC environment without order checks. Args: those of ``parallel_env``."""
        return parallel_to_aec_wrapper(world(**arguments))

    def env(**arguments: Any) -> AECEnv[str, Any, Any]:
        """Make the world as an AEC environment that checks the order of calls. Args: those of ``parallel_env``."""
        return OrderEnforcingWrapper(raw_env(**arguments))

    return raw_env, env


def space_of(given: Bounds | Space) -> Space:
    """Box with these ends; a space is returned unchanged."""
    if isinstance(given, gymnasium.Space):
        return given
    low, high = (np.array(end, dtype=float) for end in given)
    return Box(low, high, dtype=np.float64)


def _checked(action: Any, space: Space, at: str, what: str) -> Float[np.ndarray, " d"]:
    if isinstance(space, Dict):
        given = table(action, f"of {', '.join(space)}", at)
        if set(given) != set(space):
            raise ConfigError(f"got {sorted(given)}; wanted {list(space)}", at=at)
        parts = [_checked(given[name], part, f"{at}.{name}", f"[{name}]") for name, part in space.items()]
        return np.concatenate(parts)
    if isinstance(space, Discrete):
        return np.array([whole_number(action, 0, at, int(space.n) - 1)], dtype=float)
    box: Any = space
    if (vector := real_array(action)) is None:
        raise ConfigError(f"got {short(action)}; wanted {what}", at=at)
    if vector.shape != box.shape:
        raise ConfigError(f"got shape {vector.shape}; wanted {what}, of shape {box.shape}", at=at)
    # an action may have been rounded to float32
    slack = 1e-6 * (box.high - box.low) + 1e-7 * np.maximum(np.abs(box.low), np.abs(box.high))
    if not ((vector >= box.low - slack) & (vector <= box.high + slack)).all():
        raise ConfigError(f"got {vector.tolist()}; wanted {what} from {box.low.tolist()} to {box.high.tolist()}", at=at)
    return np.clip(vector, box.low, box.high)

"""The robot team as a PettingZoo environment."""

import secrets
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import networkx as nx
import numpy as np
from gymnasium.error import ResetNeeded
from jaxtyping import Float
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from swarmbo import rng
from swarmbo.errors import ConfigError
from swarmbo.records import GroundTruth
from swarmbo.settings import convert
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.landscape import build_field
from swarmbo_envs.robot_team.radio import links_in_range
from swarmbo_envs.robot_team.settings import RobotTeamSettings
from swarmbo_envs.robot_team.starts import nearest_free_sites, spread_starts

Array = NDArray[np.float64]
Infos = dict[str, dict[str, Any]]


class RobotTeam(ParallelEnv[str, Array, Array]):
    """DOC"""

    metadata: ClassVar[dict[str, Any]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "name": "robot_team_v0",
        "render_modes": ["rgb_array", "ansi", "human"],
        "is_parallelizable": True,
        "render_fps": 4,
    }

    def __init__(
        self,
        *,
        robots: int = 4,
        field: Mapping[str, Any] | None = None,
        starts: Any = None,
        speed_m_s: float = 5.0,
        turn_rate_rad_s: float = 0.5,
        round_time_s: float | None = None,
        radio_range_m: float | None = None,
        noise_std: float = 0.0,
        failure_rate: float = 0.0,
        travel_cost: float = 0.0,
        max_cycles: int = 25,
        max_sites: int = 16_384,
        render_mode: str | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if isinstance(starts, np.ndarray):
            given["starts"] = starts.tolist()
        settings = convert(given, RobotTeamSettings)
        self.settings = settings
        self.field = build_field(settings.field, settings.max_sites)
        self.max_cycles = settings.max_cycles
        self.render_mode = settings.render_mode
        self.possible_agents = [f"robot_{i}" for i in range(settings.robots)]
        self.agents: list[str] = []
        low, high = self.field.low, self.field.high
        self.unicycle = motion.Unicycle(settings.speed_m_s, settings.turn_rate_rad_s, low, high)
        self.round_time_s = settings.round_time_s or (
            np.pi / settings.turn_rate_rad_s + self.field.reach_m / settings.speed_m_s
        )
        self.radio_range_m = settings.radio_range_m or 0.5 * float(np.hypot(*(high - low)))
        self._starts = self._checked_starts()
        span = self.field.maximum - self.field.minimum
        margin = 6 * settings.noise_std + (0.1 * span or 1.0)
        lowest = np.array([*low, -np.pi, self.field.minimum - margin, 0.0])
        highest = np.array([*high, np.pi, self.field.maximum + margin, 1.0])
        self._observation_spaces = {
            agent: gymnasium.spaces.Box(lowest, highest, dtype=np.float64) for agent in self.possible_agents
        }
        self._action_spaces = {
            agent: gymnasium.spaces.Box(low, high, dtype=np.float64) for agent in self.possible_agents
        }
        self.state_space = gymnasium.spaces.Box(
            np.tile(lowest, settings.robots), np.tile(highest, settings.robots), dtype=np.float64
        )
        self._episode: Episode | None = None

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """The box of an agent's observations; the same object on each call."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        """The map; the same object on each call."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Array], Infos]:
        """Put the robots at their starts, where each measures at once.

        Args:
            seed: Of starts, noise and failures, >= 0. None goes on to the next episode of the last seed given; the very
                first episode without any seed is random.
            options: Not used.

        Returns:
            Observations, and infos with the measurements at the starts.
        """
        old = self._episode
        if seed is not None:
            seed, number = int(seed), 0
        elif old is not None:
            seed, number = old.seed, old.number + 1
        else:
            seed, number = secrets.randbits(62), 0
        generator = rng.stream(seed, "robot_team", "starts", episode=number)
        starts = (
            spread_starts(generator, self.field.sites, self.settings.robots) if self._starts is None else self._starts
        )
        headings = generator.uniform(-np.pi, np.pi, size=len(starts))
        self._episode = episode = Episode(
            seed=seed,
            number=number,
            round=0,
            running=True,
            poses=np.column_stack([starts, headings]),
            last=np.full(len(starts), np.nan),
            measured=np.zeros(len(self.field.sites), dtype=bool),
            trails=[start[None].copy() for start in starts],
            samples=np.empty((0, 4)),
        )
        self.agents = self.possible_agents.copy()
        infos = {agent: self._measure(episode, robot, 0.0, True, True) for robot, agent in enumerate(self.agents)}
        self._show_to_human()
        return self._observe(episode), infos

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Drive every robot towards its place for one round, and measure.

        Args:
            actions: A place on the map for each live agent.

        Returns:
            Observations, rewards, terminations, truncations and infos. All empty once the episode is over.

        Raises:
            ConfigError: If an agent's action is missing, has another shape, is not finite or lies outside its space.
        """
        episode = self._current()
        agents = self.agents
        places = self._checked_actions(actions)
        if not agents:
            return {}, {}, {}, {}, {}
        episode.round += 1
        infos = {agent: self._drive_and_measure(episode, robot, places[robot]) for robot, agent in enumerate(agents)}
        rewards = {
            agent: (0.0 if np.isnan(info["measurement"]) else info["measurement"]) - info["cost"]
            for agent, info in infos.items()
        }
        over = episode.round >= self.max_cycles
        observations = self._observe(episode)
        terminations, truncations = dict.fromkeys(agents, False), dict.fromkeys(agents, over)
        if over:
            episode.running, self.agents = False, []
        self._show_to_human()
        return observations, rewards, terminations, truncations, infos

    def candidates(self, agent: str) -> Float[np.ndarray, "k 2"]:
        """Sites that an agent can reach and measure this round, in the order of ``field.sites``; there may be none.

        Args:
            agent: Its name.
        """
        episode = self._current()
        near = self._reachable(episode, self.possible_agents.index(agent))
        return self.field.sites[near]

    def interaction_graph(self) -> "nx.Graph[str]":
        """Who is in radio range of whom now; edges carry their ``distance`` in metres."""
        return links_in_range(self.possible_agents, self._current().poses[:, :2], self.radio_range_m)

    def ground_truth(self) -> GroundTruth:
        """The noise-free field, for metrics and figures."""
        field = self.field
        values = field.value(field.points)
        return GroundTruth(field.points, values, field.maximum, field.argmax, field.unit, "m", field.name, field.value)

    def state(self) -> Array:
        """The observations of all robots, one after the other."""
        return np.concatenate(list(self._observe(self._current()).values()))

    def get_state(self) -> dict[str, Any]:
        """Everything that changes, as ``{"json": ..., "arrays": ...}``; ``set_state`` continues from it exactly."""
        state = self._current().to_state(self.field.name)
        state["json"]["max_cycles"] = self.max_cycles
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that an environment with the same arguments wrote.

        Args:
            state: From ``get_state``.

        Raises:
            StateVersionError: If it was written by another version, or in another world.
        """
        episode = Episode.from_state(state, self.field.name, self.settings.robots, len(self.field.sites))
        self._episode, self.max_cycles = episode, state["json"]["max_cycles"]
        self.agents = self.possible_agents.copy() if episode.running else []

    def render(self) -> Any:
        """A picture (height, width, 3) of bytes, a text, or (``human``) nothing: the text goes to the terminal."""
        self._current()
        if self.render_mode is None:
            raise ConfigError("got None; wanted 'rgb_array', 'ansi' or 'human' to render", at="$.render_mode")
        if self.render_mode == "rgb_array":
            from swarmbo_envs.robot_team.rendering import frame  # figures take a second to import

            return frame(self.field, self._current(), self.interaction_graph(), self.max_cycles)
        if self.render_mode == "ansi":
            return self._text()
        self._show_to_human()
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def _text(self) -> str:
        from swarmbo_envs.robot_team.terminal import text_map

        return text_map(self.field, self._current(), self.max_cycles)

    def _show_to_human(self) -> None:
        if self.render_mode == "human":
            sys.stdout.write(self._text())

    def _current(self) -> Episode:
        if self._episode is None:
            raise ResetNeeded("call reset() first")
        return self._episode

    def _reachable(self, episode: Episode, robot: int) -> NDArray[np.int64]:
        """Indices of the sites that a robot can reach and measure this round."""
        pose = episode.poses[robot]
        offset = self.field.sites - pose[:2]
        limit = self.settings.speed_m_s * self.round_time_s * (1 + 1e-9)  # a place exactly at the limit is within it
        near = np.flatnonzero(((offset**2).sum(axis=1) <= limit**2) & ~episode.measured)
        times = self.unicycle.travel_time(pose, self.field.sites[near])
        return near[times <= self.round_time_s * (1 + 1e-9)]

    def _drive_and_measure(self, episode: Episode, robot: int, place: Array) -> dict[str, Any]:
        goal, as_asked, at_site = place, True, True
        if self.field.sites_only:
            goal, as_asked, at_site = self._site_to_sample(episode, robot, place)
        pose = episode.poses[robot]
        whole = self.unicycle.paths(pose, goal[None])[0]
        path = motion.cut(whole, self.round_time_s * (1 + 1e-9))
        arrived = bool((path == whole).all())
        there = motion.advance(pose, path)
        there[:2] = goal if arrived else np.clip(there[:2], self.field.low, self.field.high)
        episode.trails[robot] = np.concatenate([episode.trails[robot], motion.trace(pose, path)[1:]])
        episode.poses[robot] = there
        return self._measure(episode, robot, motion.length(path), arrived and as_asked, arrived and at_site)

    def _site_to_sample(self, episode: Episode, robot: int, place: Array) -> tuple[Array, bool, bool]:
        """Where to drive when only sites can be measured, whether that is as asked, and whether it can be measured."""
        sites = self.field.sites
        squared = np.where(episode.measured, np.inf, ((sites - place) ** 2).sum(axis=1))
        nearest = int(squared.argmin())
        if np.isinf(squared[nearest]):
            return episode.poses[robot, :2].copy(), False, False  # every site was measured: stay
        reachable = self._reachable(episode, robot)
        if len(reachable) == 0:
            return sites[nearest], False, True
        chosen = int(reachable[squared[reachable].argmin()])
        return sites[chosen], chosen == nearest, True

    def _measure(
        self, episode: Episode, robot: int, distance: float, reached: bool, measurable: bool
    ) -> dict[str, Any]:
        """What one robot measures where it stands, written into the episode."""
        settings, agent = self.settings, self.possible_agents[robot]
        location = episode.poses[robot, :2].copy()
        where = {"agent": agent, "round": episode.round, "episode": episode.number}
        if measurable and rng.stream(episode.seed, "robot_team", "failure", **where).random() >= settings.failure_rate:
            noise = settings.noise_std * rng.stream(episode.seed, "robot_team", "noise", **where).standard_normal()
            measurement = float(self.field.value(location[None])[0] + noise)
            episode.last[robot] = measurement
            if self.field.sites_only:
                episode.measured[((self.field.sites - location) ** 2).sum(axis=1).argmin()] = True
        else:
            measurement = float("nan")
        episode.samples = np.vstack([episode.samples, [robot, *location, measurement]])
        return {
            "measurement": measurement,
            "location": location,
            "cost": settings.travel_cost * distance,
            "distance": distance,
            "reached": reached,
            "interpolated": self.field.interpolated,
        }

    def _observe(self, episode: Episode) -> dict[str, Array]:
        left = max(0.0, 1 - episode.round / self.max_cycles)
        observations: dict[str, Array] = {}
        for robot, agent in enumerate(self.possible_agents):
            space = self._observation_spaces[agent]
            last = episode.last[robot]
            seen = [*episode.poses[robot], space.low[3] if np.isnan(last) else last, left]
            observations[agent] = np.clip(np.array(seen), space.low, space.high)
        return observations

    def _checked_starts(self) -> Array | None:
        field, settings = self.field, self.settings
        if (settings.starts is None or field.sites_only) and settings.robots > len(field.sites):
            raise ConfigError(f"got {settings.robots}; wanted at most one per site: {len(field.sites)}", at="$.robots")
        if settings.starts is None:
            return None
        starts = np.array(settings.starts, dtype=float)
        for i, start in enumerate(starts):
            if not ((start >= field.low) & (start <= field.high)).all():
                raise ConfigError(
                    f"got {start.tolist()}; wanted a place on the map, x from {field.low[0]:g} to {field.high[0]:g} m "
                    f"and y from {field.low[1]:g} to {field.high[1]:g} m",
                    at=f"$.starts[{i}]",
                )
            if (start == starts[:i]).all(axis=1).any():
                raise ConfigError(
                    f"got {start.tolist()} twice; wanted a place of its own per robot", at=f"$.starts[{i}]"
                )
        return nearest_free_sites(starts, field.sites) if field.sites_only else starts

    def _checked_actions(self, actions: dict[str, Array]) -> Array:
        for agent in actions:
            if agent not in self.agents:
                raise ConfigError(f"got an action for {agent!r}; live agents: {self.agents}", at="$.actions")
        field = self.field
        slack = 1e-6 * np.maximum(np.abs(field.low), np.abs(field.high))  # an action may have been rounded to float32
        places = np.empty((len(self.agents), 2))
        for robot, agent in enumerate(self.agents):
            at = f"$.actions.{agent}"
            if agent not in actions:
                raise ConfigError("got no action; wanted one per live agent", at=at)
            place = np.asarray(actions[agent], dtype=float)
            if place.shape != (2,):
                raise ConfigError(f"got shape {place.shape}; wanted [x, y]", at=at)
            if not ((place >= field.low - slack) & (place <= field.high + slack)).all():
                raise ConfigError(
                    f"got {place.tolist()}; wanted a place from {field.low.tolist()} to {field.high.tolist()}", at=at
                )
            places[robot] = np.clip(place, field.low, field.high)
        return places

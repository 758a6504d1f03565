"""Worlds for libraries of reinforcement learning: equal spaces from -1 to 1, and policies that were trained there."""

import copy
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Float
from numpy.typing import NDArray
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from swarmbo.boundary.files import open_regular
from swarmbo.boundary.values import known_names, real_array, reported_number, short, whole_number
from swarmbo.errors import ConfigError
from swarmbo_envs.shared import Values

Row = NDArray[np.float32]
_WIDE = 1e9  # a wider range belongs to unbounded measurements, which get a logarithmic scale


class Scale:
    """Linear map of all agents' boxes to [-1, 1], in float32, padded with 0 to the size of the largest box.

    Coordinates with a range beyond 1e9 are unbounded measurements: the map is linear in sign(x) ln(1 + |x|) instead.
    ``invert``, which is for actions, is linear in every coordinate.
    """

    def __init__(self, boxes: Mapping[str, Any]) -> None:
        self._ends: dict[str, tuple[Values, Values, NDArray[np.bool_]]] = {}
        for agent, box in boxes.items():
            if not (isinstance(box, Box) and len(box.shape) == 1 and np.isfinite([box.low, box.high]).all()):
                fix = "wanted boxes of finite ends and one axis, such as those of a WLAN without channels"
                raise ConfigError(f"got {box} of {agent}; {fix}", at="$.env")
            wide = box.high - box.low > _WIDE
            low, high = (np.where(wide, _signed_log(end), end) for end in (box.low, box.high))
            self._ends[agent] = low, np.where(high > low, high - low, 1.0), wide
        self._boxes, self.size = dict(boxes), max(box.shape[0] for box in boxes.values())
        self.space = Box(-1.0, 1.0, (self.size,), np.float32)

    def apply(self, agent: str, values: Float[np.ndarray, "*rows d"]) -> Row:
        """Scaled values of an agent, clipped into its box, of one observation or many."""
        low, sides, wide = self._ends[agent]
        scaled_orders = np.where(wide, _signed_log(values), values)
        scaled = np.zeros((*scaled_orders.shape[:-1], self.size), dtype=np.float32)
        scaled[..., : len(low)] = np.clip(2.0 * (scaled_orders - low) / sides - 1.0, -1.0, 1.0)
        return scaled

    def invert(self, agent: str, scaled: Values) -> Float[np.ndarray, " d"]:
        """Values of an action in the agent's box from scaled values, without the padding."""
        box: Any = self._boxes[agent]
        if (given := real_array(scaled)) is None or given.shape != (self.size,):
            raise ConfigError(f"got {short(scaled)}; wanted {self.size} numbers from -1 to 1", at=f"$.actions.{agent}")
        share = (given[: len(box.low)] + 1.0) / 2.0
        return box.low + np.clip(share, 0.0, 1.0) * (box.high - box.low)


def _signed_log(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values))


class Normalised(BaseParallelWrapper[str, Any, Any]):
    """A world whose agents all observe Box(-1, 1, (n,), float32), and act in Box(-1, 1, (m,), float32); see ``Scale``.

    Args:
        env: A world of boxes with finite ends.
        levels: >= 2: actions are of ``Discrete(levels)``, evenly spaced from the low to the high end, in a world whose
            agents set one number each, such as a transmit power.
        reward_scale: Factor of all rewards.

    Raises:
        ConfigError: If a space is not as above, ``levels`` are below 2, or agents with levels set several numbers.

    Example:
        >>> from swarmbo_envs import wlan_power_v0
        >>> env = Normalised(wlan_power_v0.parallel_env(worlds="drawn"), levels=5, reward_scale=0.01)
        >>> observations, infos = env.reset(seed=0)
        >>> env.action_space("ap_0"), observations["ap_0"].shape
        (Discrete(5), (7,))
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], levels: int | None = None, reward_scale: float = 1.0) -> None:
        if not isinstance(cast(object, env), ParallelEnv):
            raise ConfigError(f"got {short(env)}; wanted a PettingZoo ParallelEnv", at="$.env")
        super().__init__(env)
        agents = env.possible_agents
        self.observation_scale = Scale({agent: env.observation_space(agent) for agent in agents})
        self.action_scale = Scale({agent: env.action_space(agent) for agent in agents})
        if levels is not None and whole_number(levels, 2, "$.levels") and self.action_scale.size > 1:
            raise ConfigError(f"got {levels}; wanted none, as actions have more than one number", at="$.levels")
        self._levels, self._factor = levels, reported_number(reward_scale)
        if not np.isfinite(self._factor):
            raise ConfigError(f"got {short(reward_scale)}; wanted a finite number", at="$.reward_scale")
        space = self.action_scale.space if levels is None else Discrete(levels)
        self._actions = {agent: copy.deepcopy(space) for agent in agents}  # each has its own random stream
        self._observations = {agent: copy.deepcopy(self.observation_scale.space) for agent in agents}

    def action_space(self, agent: str) -> Any:
        """Action space of an agent; the same object on each call."""
        return self._actions[agent]

    def observation_space(self, agent: str) -> Any:
        """Observation space of an agent; the same object on each call."""
        return self._observations[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Row], Any]:
        """Begin an episode; see ``SimulatedWorld.reset``."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self.scaled_observations(observations), infos

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Row], dict[str, float], Any, Any, Any]:
        """Play one round of scaled actions, or levels."""
        observations, rewards, terminations, truncations, infos = self.env.step(self.world_actions(actions))
        rewards = {agent: self._factor * reward for agent, reward in rewards.items()}
        return self.scaled_observations(observations), rewards, terminations, truncations, infos

    def scaled_observations(self, observations: Mapping[str, Any]) -> dict[str, Row]:
        """Scaled observations."""
        return {agent: self.observation_scale.apply(agent, observation) for agent, observation in observations.items()}

    def world_actions(self, actions: Mapping[str, Any]) -> dict[str, Values]:
        """Actions of the world from scaled actions, clipped to -1 and 1, or from levels."""
        known_names(actions, self.possible_agents, "$.actions")
        if self._levels is not None:
            top = self._levels - 1
            chosen = {agent: whole_number(action, 0, f"$.actions.{agent}", top) for agent, action in actions.items()}
            actions = {agent: np.array([2.0 * level / top - 1.0]) for agent, level in chosen.items()}
        return {agent: self.action_scale.invert(agent, action) for agent, action in actions.items()}


class SavedPolicy:
    """A neural network that all agents share, for ``policy`` of a scenario, from arrays in a file without pickles.

    Args:
        file: ``.npz`` with weights ``W0`` (n, h), ``b0`` (h,), ``W1``, …: layers with tanh between them, whose outputs
            are a scaled action (``levels`` is 0), or the logits of that many ``levels``.
    """

    def __init__(self, file: str | PathLike[str]) -> None:
        try:
            with open_regular(Path(file)) as stream, np.load(stream, allow_pickle=False) as stored:
                arrays = dict(stored)
            count = max(1, sum(name.startswith("W") for name in arrays))
            self.layers = [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in range(count)]
            self.levels = int(arrays["levels"]) or None
            self._outputs(np.zeros((1, len(self.layers[0][0]))))  # layers that do not fit are refused here
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
            raise ConfigError(f"got {file}: {error}; wanted arrays W0, b0, W1, … and levels", at="$.file") from None

    def begin(self, env: Any, seed: int) -> None:
        """Scale observations and actions by the spaces of a world."""
        self._world = Normalised(env, self.levels)
        if (n := len(self.layers[0][0])) != (size := self._world.observation_scale.size):
            raise ConfigError(f"got a network of {n} inputs; wanted {size}, as observations have", at="$.policy")

    def act(self, observations: Mapping[str, Any]) -> dict[str, Values]:
        """Most probable action of each agent, from its own observation."""
        x = np.array(list(self._world.scaled_observations(observations).values()), dtype=float)
        return self._world.world_actions(dict(zip(observations, self._outputs(x), strict=True)))

    def _outputs(self, x: Float[np.ndarray, "k n"]) -> np.ndarray:
        """Scaled actions (k, m) or levels (k,) from scaled observations."""
        for layer, (W, b) in enumerate(self.layers):
            x = x @ W + b if layer == len(self.layers) - 1 else np.tanh(x @ W + b)
        return x.argmax(axis=1) if self.levels is not None else np.clip(x, -1.0, 1.0)

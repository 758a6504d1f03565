"""What a world keeps to."""

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import networkx as nx
import numpy as np
from pettingzoo.test import parallel_api_test

from swarmbo.joint_world import JointWorld
from swarmbo.spaces import Domain
from swarmbo.testing.claims import are_equal, claim, claim_offers
from swarmbo.world import World

_AHEAD = 4  # steps before an episode is copied or written down


def check_environment(make: Callable[[], Any], cycles: int = 20) -> None:
    """Hold a world to its contract; ``docs/architecture.md`` says what a world may offer besides.

    It keeps PettingZoo's parallel API. The same seed gives the same episode to the bit. Spaces hold what is returned;
    rewards are finite numbers, flags are bools. Infos say where agents measured, inside their action spaces, and what,
    NaN where that failed. All agents end together. A deep copy, and a state that was written down (if it has
    ``get_state`` and ``set_state``), go on alike in mid-episode. What it tells its team fits.

    Args:
        make: Makes it anew, with the same arguments.
        cycles: The most steps of an episode to try, > 4.

    Raises:
        AssertionError: With the claim that does not hold.
        ConfigError: If no team can be made for it.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo_envs import function_v0
        >>> sb.testing.check_environment(lambda: function_v0.parallel_env(function="camel"))
    """
    with warnings.catch_warnings(), redirect_stdout(StringIO()):  # it says when it passed
        warnings.filterwarnings("ignore", "Agents have different|Observations are different shapes")
        parallel_api_test(make(), num_cycles=cycles)
    _check_spaces(make())
    _check_told(make(), cycles)
    claim(
        are_equal(_episode(make(), cycles, seed=0), _episode(make(), cycles, seed=0)),
        "the same seed and actions give another episode",
    )
    _check_copy(make(), cycles)
    if hasattr(make().unwrapped, "get_state"):
        _check_state(make, cycles)
    env = make()
    env.reset(seed=0)
    _check_offers(env)


def _episode(env: Any, cycles: int, seed: int | None = None) -> list[Any]:
    """Everything that an episode returns under drawn actions; it goes on from where it stands if no seed is given."""
    rng = np.random.default_rng(0)
    told: list[Any] = [] if seed is None else [env.reset(seed=seed)]
    for _ in range(cycles):
        if not env.agents:
            break
        boxes = {agent: env.action_space(agent) for agent in env.agents}
        told.append(env.step({agent: rng.uniform(box.low, box.high) for agent, box in boxes.items()}))
        if hasattr(env.unwrapped, "state_space"):
            told.append(env.state())
    return told


def _check_spaces(env: Any) -> None:
    for agent in env.possible_agents:
        space = env.action_space(agent)
        try:
            Domain.of_space(space)
        except ValueError as error:
            raise AssertionError(f"action space of {agent!r}: {error}") from None
        for name, spaces in (("action", env.action_space), ("observation", env.observation_space)):
            claim(spaces(agent) is spaces(agent), f"{name}_space({agent!r}) is a new one every time; seeds are lost")


def _check_told(env: Any, cycles: int) -> None:
    observations, infos = env.reset(seed=1)
    _check_observed(env, observations)
    claim(set(infos) == set(observations), f"reset() has infos of {sorted(infos)}; wanted {sorted(observations)}")
    rng = np.random.default_rng(1)
    for _ in range(cycles):
        live = list(env.agents)
        boxes = {agent: env.action_space(agent) for agent in live}
        step = env.step({agent: rng.uniform(box.low, box.high) for agent, box in boxes.items()})
        observations, rewards, terminations, truncations, infos = step
        for name, table in zip(("observations", "rewards", "infos"), (observations, rewards, infos), strict=True):
            claim(set(table) == set(live), f"step() has {name} of {sorted(table)}; wanted {sorted(live)}")
        _check_observed(env, observations)
        for agent in live:
            reward, flags = rewards[agent], (terminations[agent], truncations[agent])
            claim(np.isfinite(reward), f"the reward of {agent!r} is {reward}; wanted a finite number")
            claim(all(isinstance(flag, bool) for flag in flags), f"terminations and truncations of {agent!r}: no bools")
            _check_info(env, agent, infos[agent])
        ended = {agent for agent in live if terminations[agent] or truncations[agent]}
        claim(not ended or ended == set(live), f"only {sorted(ended)} ended; wanted all agents at once, or none")
        claim(not ended or not env.agents, "an episode ended, but agents are still live")
        if ended:
            return


def _check_observed(env: Any, observations: Mapping[str, Any]) -> None:
    for agent, seen in observations.items():
        claim(env.observation_space(agent).contains(seen), f"an observation of {agent!r} is not in its space: {seen!r}")


def _check_info(env: Any, agent: str, info: Mapping[str, Any]) -> None:
    told = [key for key in ("measurement", "factors") if key in info]
    claim(told, f"infos of {agent!r} have no 'measurement', nor 'factors'")
    if "measurement" in info:
        claim(np.ndim(info["measurement"]) == 0, f"the measurement of {agent!r} is no number: {info['measurement']!r}")
    claim("location" in info, f"infos of {agent!r} have no 'location'")
    where, box = info["location"], env.action_space(agent)
    claim(box.contains(where), f"the location of {agent!r}, {where!r}, is not in its action space {box}")


def _check_copy(env: Any, cycles: int) -> None:
    _episode(env, _AHEAD, seed=5)
    copied = copy.deepcopy(env)
    ahead = _episode(copied, cycles)
    claim(are_equal(_episode(env, cycles), ahead), "a copy in mid-episode goes on otherwise, or moves the original")


def _check_state(make: Callable[[], Any], cycles: int) -> None:
    env, fresh = make(), make()
    claim_offers(env.unwrapped, "get_state", "set_state")
    _episode(env, _AHEAD, seed=5)
    state = env.unwrapped.get_state()
    claim(set(state) == {"json", "arrays"}, f"get_state() has {sorted(state)}; wanted 'json' and 'arrays'")
    written = json.dumps(state["json"])
    arrays = {name: np.array(array) for name, array in state["arrays"].items()}
    ahead = _episode(env, cycles)
    unmoved = json.dumps(state["json"]) == written and are_equal(state["arrays"], arrays)
    claim(unmoved, "a state changed when its world went on")
    fresh.unwrapped.set_state({"json": json.loads(written), "arrays": arrays})
    claim(are_equal(_episode(fresh, cycles), ahead), "a state that was written down goes on otherwise")


def _check_offers(env: Any) -> None:
    world = env.unwrapped
    agents = set(env.possible_agents)
    if hasattr(world, "interaction_graph"):
        links = world.interaction_graph()
        claim(isinstance(links, nx.Graph) and not links.is_directed(), "interaction_graph() is no undirected graph")
        claim(agents <= set(links), f"interaction_graph() lacks {sorted(agents - set(links))}")
    if hasattr(world, "factor_graph"):
        JointWorld(env)
        return
    box = World(env).domain
    places = {"sites()": world.sites} if hasattr(world, "sites") else {}
    if hasattr(world, "candidates"):
        places |= {f"candidates({agent!r})": lambda agent=agent: world.candidates(agent) for agent in env.agents}
    for name, told in places.items():
        X = np.asarray(told(), dtype=float)
        claim(X.ndim == 2 and X.shape[1] == box.n_dims, f"{name} has shape {X.shape}; wanted (k, {box.n_dims})")
        u = box.to_unit(X)
        claim(((u >= -1e-6) & (u <= 1.0 + 1e-6)).all(), f"{name} lie outside of the action space")

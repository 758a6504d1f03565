"""Contract of an environment."""

import copy
import json
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import networkx as nx
import numpy as np
from gymnasium.spaces import Box, Dict
from pettingzoo.test import parallel_api_test

from swarmbo.boundary.values import reported_noise, reported_number, reported_place
from swarmbo.records import TRUE_MAXIMUM, GroundTruth
from swarmbo.spaces import Domain
from swarmbo.testing.claims import claim, claim_close, claim_equal, claim_offers, refuse
from swarmbo.worlds import FieldWorld, FunctionWorld, Report
from swarmbo.worlds.actions import variables_of

_RESULTS = ("observations", "rewards", "terminations", "truncations", "infos")  # what step() returns
_FIRST_STEPS = 4  # steps before an episode is copied or saved


def check_environment(make: Callable[[], Any], cycles: int = 20) -> None:
    """Check the contract of an environment; ``docs/environments/contract.md`` lists its optional methods.

    An environment has PettingZoo's parallel API. Episodes of one seed are bit-identical. Spaces contain the returned
    values; rewards are finite numbers, and flags are bools. Infos have the values of measurements that did not fail
    (NaN would not be equal to itself). Locations in infos are inside the action spaces. For agents that may abstain,
    infos state whether they did. All agents end together. In mid-episode, a deep copy continues identically,
    and so does a saved state (``get_state``, ``set_state``). The information for a team is consistent.

    Args:
        make: Function that makes a new environment, always with the same arguments.
        cycles: Largest number of steps of an episode to try, > 4.

    Raises:
        AssertionError: If a claim is violated. The message has its subject, the value got and the value wanted.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo_envs import function_v0
        >>> sb.testing.check_environment(lambda: function_v0.parallel_env(function="camel"))
    """
    claim(callable(make), "make", f"an object, {type(make).__name__}", "a function that makes a new environment")
    _check_spaces(make())
    _check_reset_and_steps(make(), cycles)
    _check_api(make(), cycles)
    first, second = (_episode(make(), cycles, seed=0) for _ in range(2))
    claim_equal(second, first, "an episode after the same seed and actions", "a bit-identical one")
    _episode(env := make(), _FIRST_STEPS, seed=5)
    ahead, stayed = _episode(copy.deepcopy(env), cycles), "those of the original, which the copy leaves unchanged"
    claim_equal(ahead, _episode(env, cycles), "steps of a deep copy in mid-episode", stayed)
    if hasattr(make().unwrapped, "get_state"):
        _check_state(make, cycles)
    env = make()
    env.reset(seed=0)
    _check_team_information(env)


def _episode(env: Any, cycles: int, seed: int | None = None) -> list[Any]:
    """All results of an episode under random actions; without a seed, the current episode continues."""
    results: list[Any] = [] if seed is None else [env.reset(seed=seed)]
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(number)
    for _ in range(cycles):
        if not env.agents:
            break
        results.append(env.step({agent: env.action_space(agent).sample() for agent in env.agents}))
        if hasattr(env.unwrapped, "state_space"):
            results.append(env.state())
    return results


def _check_api(env: Any, cycles: int) -> None:
    with warnings.catch_warnings(), redirect_stdout(StringIO()):  # the test prints on success
        warnings.filterwarnings("ignore", "Agents have different|Observations are different shapes")
        try:
            parallel_api_test(env, num_cycles=cycles)
        except AssertionError as error:
            bare = f"a bare assertion, {traceback.extract_tb(error.__traceback__)[-1].line}"
            refuse("PettingZoo's parallel_api_test", " ".join(str(error).split()) or bare, "a world that passes it")


def _check_spaces(env: Any) -> None:
    claim_offers(env, "possible_agents", "action_space", "observation_space", "reset", "step", "unwrapped")
    for agent in env.possible_agents:
        space = env.action_space(agent)
        wanted, is_function = "a finite float Box with one axis", hasattr(env.unwrapped, "factor_graph")
        try:
            variables_of(space, agent) if is_function else Domain.of_space(space)
        except ValueError as error:
            wanted += ", Discrete, MultiDiscrete, or a Dict of these" if is_function else ""
            refuse(f"action space of {agent!r}", str(error if is_function else space), wanted)
        for name, spaces in (("action_space", env.action_space), ("observation_space", env.observation_space)):
            same = spaces(agent) is spaces(agent)
            claim(same, f"{name}({agent!r}) asked twice", "two objects", "the same one; seeds are lost otherwise")


def _check_reset_and_steps(env: Any, cycles: int) -> None:
    result = env.reset(seed=1)
    claim(isinstance(result, tuple) and len(result) == 2, "reset()", result, "a pair of observations and infos")
    live = set(env.possible_agents)
    claim(set(env.agents) == live, "agents after reset()", sorted(env.agents), sorted(live))
    for name, table in zip(("observations", "infos"), result, strict=True):
        claim(set(table) == live, f"agents in the {name} of reset()", sorted(table), sorted(live))
    _check_observations(env, result[0])
    silent = set(env.possible_agents)
    for number, agent in enumerate(env.possible_agents, start=1):
        env.action_space(agent).seed(number)
    for _ in range(cycles):
        live = set(env.agents)
        step = env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        is_whole = isinstance(step, tuple) and len(step) == len(_RESULTS)
        claim(is_whole, "step()", step, f"a tuple of {', '.join(_RESULTS)}")
        for name, table in zip(_RESULTS, step, strict=True):
            claim(set(table) == live, f"agents in the {name} of step()", sorted(table), sorted(live))
        observations, rewards, terminations, truncations, infos = step
        _check_observations(env, observations)
        if hasattr(env.unwrapped, "state_space"):
            space = env.unwrapped.state_space
            claim(space.contains(env.state()), "state()", env.state(), f"one in its space, {space}")
        for agent in sorted(live):
            reward, flags = rewards[agent], (terminations[agent], truncations[agent])
            claim(np.isfinite(reported_number(reward)), f"the reward of {agent!r}", reward, "a finite number, always")
            are_bools = all(isinstance(flag, bool) for flag in flags)
            claim(are_bools, f"termination and truncation of {agent!r}", flags, "bools")
            _check_info(env, agent, infos[agent])
            if {"measurement", "factors", "failure"} & set(infos[agent]) or Report.of(infos[agent]).declined:
                silent.discard(agent)
        ended = {agent for agent in live if terminations[agent] or truncations[agent]}
        claim(not ended or ended == live, "agents that ended", sorted(ended), f"none, or all at once: {sorted(live)}")
        if ended:
            claim(not env.agents, "agents after the end of an episode", list(env.agents), "[]")
            break
    claim(not silent, f"infos of {sorted(silent)}", "no outcome in any round", "'measurement', or 'factors', in some")


def _check_observations(env: Any, observations: Mapping[str, Any]) -> None:
    for agent, observation in observations.items():
        space = env.observation_space(agent)
        claim(space.contains(observation), f"an observation of {agent!r}", observation, f"one in its space, {space}")


def _check_info(env: Any, agent: str, info: Any) -> None:
    claim(isinstance(info, Mapping), f"infos of {agent!r}", info, "a table")
    if hasattr(env.unwrapped, "prices"):
        sampled, priced = info.get("sampled"), "a bool: measurements have a price"
        claim(isinstance(sampled, bool), f"'sampled' in infos of {agent!r}", sampled, priced)
    _check_measurement(env, f"infos of {agent!r}", info, env.action_space(agent))
    stops: Any = info["on_the_way"] if info.get("on_the_way") is not None else ()
    claim(isinstance(stops, list | tuple), f"'on_the_way' in infos of {agent!r}", stops, "a list of tables")
    for number, stop in enumerate(stops):
        whose = f"'on_the_way'[{number}] of {agent!r}"
        is_placed = isinstance(stop, Mapping) and stop.get("location") is not None
        claim(is_placed, whose, stop, "a table with 'location', where the agent measured")
        _check_measurement(env, whose, stop, env.action_space(agent))


def _check_measurement(env: Any, whose: str, info: Mapping[str, Any], space: Any) -> None:
    outcomes = dict(info.get("factors") or {})
    if "measurement" in info:
        outcomes["measurement"] = info["measurement"]
    for name, outcome in outcomes.items():
        is_number = isinstance(outcome, float | int | np.number) and np.isfinite(reported_number(outcome))
        claim(is_number, f"{name!r} in {whose}", outcome, "a finite number; left out if it failed")
    noise = info.get("noise_std", {})
    for name, std in (noise if isinstance(noise, Mapping) else {"measurement": noise}).items():
        what, is_known = f"'noise_std' of {name!r} in {whose}", np.isfinite(reported_noise(std))
        claim(name in outcomes, what, std, "none without that outcome")
        claim(is_known, what, std, "a finite number >= 0; left out if it is not known")
    if info.get("location") is None:
        return  # the agent measured as in its action
    location = np.append(info["location"], space.high[-1]) if hasattr(env.unwrapped, "prices") else info["location"]
    claim(_contains(space, location), f"'location' in {whose}", info["location"], f"one in its action space, {space}")


def _contains(space: Any, location: Any) -> bool:
    """True if a location is in an action space, even in another number type: robots often report doubles."""
    if isinstance(space, Dict) and isinstance(location, Mapping):
        return set(location) == set(space.spaces) and all(_contains(space[key], part) for key, part in location.items())
    place = reported_place(location) if isinstance(space, Box) else None
    return space.contains(location if place is None else place.astype(space.dtype))


def _check_state(make: Callable[[], Any], cycles: int) -> None:
    env, fresh = make(), make()
    claim_offers(env.unwrapped, "get_state", "set_state")
    _episode(env, _FIRST_STEPS, seed=5)
    state = env.unwrapped.get_state()
    claim(set(state) == {"json", "arrays"}, "get_state()", sorted(state), "'json' and 'arrays'")
    plain = json.loads(json.dumps(state["json"]))
    arrays = {name: np.array(array) for name, array in state["arrays"].items()}
    ahead = _episode(env, cycles)
    now = json.loads(json.dumps(state["json"])), state["arrays"]
    claim_equal(now, (plain, arrays), "a saved state after its world continued", "the same")
    fresh.unwrapped.set_state({"json": plain, "arrays": arrays})
    claim_equal(_episode(fresh, cycles), ahead, "steps of a world from a saved state", "those of the saved world")


def _check_team_information(env: Any) -> None:
    world, agents = env.unwrapped, set(env.possible_agents)
    if hasattr(world, "interaction_graph"):
        links = world.interaction_graph()
        fits = isinstance(links, nx.Graph) and not links.is_directed() and agents <= set(links)
        claim(fits, "interaction_graph()", str(links), f"an undirected networkx graph of at least {sorted(agents)}")
    if hasattr(world, "ground_truth"):
        truth = world.ground_truth()
        claim(truth is None or isinstance(truth, GroundTruth), "ground_truth()", truth, "a GroundTruth, or None")
        if truth is not None:  # scores are differences to it
            best = np.asarray(truth.argmax, dtype=float)
            top = np.fmax.reduce(truth.values, initial=-np.inf, dtype=float)
            claim(np.isfinite(truth.maximum), "maximum of ground_truth()", truth.maximum, "a finite number")
            claim_close(truth.values, truth.value(truth.points), "values of ground_truth()", "value() at its points")
            claim_close(truth.value(best[None]), [truth.maximum], "ground_truth() at its argmax", "its maximum")
            if truth.maximum_is == TRUE_MAXIMUM:
                claim_close(max(top, truth.maximum), truth.maximum, "largest value of ground_truth()", "its maximum")
    try:
        if hasattr(world, "factor_graph"):
            FunctionWorld(env)
            return
        field = FieldWorld(env)
        offers, box = field.offers(env.agents), field.problem.box
    except ValueError as error:
        refuse("making a team for the environment", str(error), "no error")
    places = {f"candidates({agent!r})": told for agent, told in (offers.candidates or {}).items()}
    for name, told in (places if offers.sites is None else {"sites()": offers.sites, **places}).items():
        X = np.asarray(told, dtype=float)
        claim(X.ndim == 2 and X.shape[1] == box.n_dims, f"shape of {name}", X.shape, f"(k, {box.n_dims})")
        u = box.to_unit(X)
        inside = ((u >= -1e-6) & (u <= 1.0 + 1e-6)).all()
        claim(inside, name, X, f"places from {box.low.tolist()} to {box.high.tolist()}")
    if hasattr(world, "travel_rounds"):
        _check_travel(env, box)


def _check_travel(env: Any, box: Domain) -> None:
    world, X = env.unwrapped, box.from_unit(np.random.default_rng(2).uniform(size=(3, box.n_dims)))
    for agent in env.agents:
        name, rounds = f"travel_rounds({agent!r}, origins, places)", np.asarray(world.travel_rounds(agent, X, X[:2]))
        is_whole = rounds.shape == (3, 2) and rounds.dtype.kind in "iu" and bool((rounds >= 0).all())
        claim(is_whole, name, rounds, "one whole number >= 0 for each origin (n) and place (m)")
        to_itself = [rounds[n, n] in (0, np.iinfo(int).max // 4) for n in range(2)]
        wanted = "0, or np.iinfo(int).max // 4 if no agent can be there"
        claim(all(to_itself), f"{name} from a place to itself", rounds, wanted)
        if hasattr(world, "rounds_left"):
            left = world.rounds_left(agent)
            is_count = isinstance(left, int | np.integer) and left >= 0
            claim(is_count, f"rounds_left({agent!r})", left, "a whole number >= 0")
        base = world.base(agent) if hasattr(world, "base") else None
        claim(base is None or np.shape(base) == (box.n_dims,), f"base({agent!r})", base, "a place, or None")

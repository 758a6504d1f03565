"""An additive function as a PettingZoo environment: its settings, owners of its factors, and rules."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from swarmbo.boundary import rng
from swarmbo.boundary.values import linked
from swarmbo.errors import ConfigError
from swarmbo.records import GroundTruth
from swarmbo.settings import Count, Whole, require, within
from swarmbo.spaces.variables import MixedDomain
from swarmbo_envs.functions.additive_function import AdditiveFunction, typed
from swarmbo_envs.functions.library import get
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.simulated_world import Array, Infos, SimulatedWorld, WorldSettings

_N_TRUTH_POINTS = 1024


class FunctionSettings(WorldSettings, frozen=True):
    """Arguments of the function world; see ``FunctionWorld``."""

    function: str = "powell"
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    moved: bool = False
    rescaled: bool = False
    function_seed: Whole = 0
    types: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    outcomes: Literal["total", "per-factor"] = "total"
    structure: Literal["known", "hidden"] = "known"
    agents: Annotated[int, within(1, 4096)] | None = None
    relative_noise: Annotated[float, within(0, 10, "a share")] = 0.0
    max_cycles: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "parameters", _are_within_reason, "counts up to 4096, other numbers from 1e-6 to 1e6 in size")
        wanted = "'total' where the structure is hidden: outcomes per factor would reveal it"
        require(self, "outcomes", lambda it: it == "total" or self.structure == "known", wanted)


def _are_within_reason(parameters: dict[str, Any]) -> bool:
    counts = [value for value in parameters.values() if isinstance(value, int)]
    others = [abs(value) for value in parameters.values() if isinstance(value, float)]
    return all(value <= 4096 for value in counts) and all(value == 0.0 or 1e-6 <= value <= 1e6 for value in others)


def assign_owners(
    variables: Sequence[str], scopes: Mapping[str, Sequence[str]], n_agents: int | None
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Agents, and the owner of each factor and of each variable, so that every agent owns a variable.

    A variable belongs to the owner of the first factor that it is in, a factor without new variables to the owner of
    its first variable. Factors that add variables are dealt out evenly, in order, by default one per agent.
    """
    first_factor: dict[str, str] = {}
    for factor, scope in scopes.items():
        for variable in scope:
            first_factor.setdefault(variable, factor)
    introducing = list(dict.fromkeys(first_factor.values()))
    n = len(introducing) if n_agents is None else n_agents
    if n > len(introducing):
        wanted = f"wanted at most {len(introducing)}, one per factor with new variables"
        raise ConfigError(f"got {n} agents; {wanted}", at="$.agents")
    agents = [f"agent_{i}" for i in range(n)]
    first_owner = {factor: agents[place * n // len(introducing)] for place, factor in enumerate(introducing)}
    owner_of = {variable: first_owner[factor] for variable, factor in first_factor.items()}
    factors = {factor: first_owner.get(factor, owner_of[scope[0]]) for factor, scope in scopes.items()}
    return agents, factors, {variable: owner_of.get(variable, agents[-1]) for variable in variables}


@dataclass
class Episode(WorldEpisode):
    """State of an episode, in addition to the fields of all worlds; NaN marks missing measurements."""

    setting: Float[np.ndarray, " n"]
    last: Float[np.ndarray, " agents"]
    best: list[float]


class FunctionWorld(SimulatedWorld[FunctionSettings, Episode], arguments=FunctionSettings, name="function_v0"):
    """Agents set the variables of a function jointly; each round evaluates it once, at the joint point.

    | | |
    |---|---|
    | Agents | ``agent_0`` ..., fixed; by default one per factor that adds variables |
    | Action | values of the agent's own variables: Box, physical, float64 |
    | Observation | Box, float64: own values, last good measurement (the lower bound while there is none), share of \
rounds left |
    | State | values of all variables, and the share of rounds left |
    | Reward | an equal share of the function's value; see ``reward`` |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]`` after a step; ``reset`` evaluates nothing:

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | the total, or per factor the sum of the agent's factors; missing if it failed |
    | ``factors`` | dict | with ``outcomes = "per-factor"``: the outcome of each factor that the agent owns \
and that did not fail |
    | ``location`` | array | applied values of the agent's variables |
    | ``cost`` | float | 0 |
    | ``failure`` | str | reason of a failed evaluation |

    Args:
        function: Name of a function of the library, or an ``AdditiveFunction``.
        parameters: Settings of that function, such as ``{n_variables = 24}``.
        moved: Move the optimum to a random point.
        rescaled: Stretch the axes at random.
        function_seed: Seed of the function's randomness; not of the noise.
        worlds: ``fixed``: one for all episodes. ``drawn``: each reset draws another function of the family, with
            another ``function_seed``; ``reset(options={"world": number})`` picks one.
        types: Types of some variables, ``{x0 = {kind = "integer", low = 1, high = 9}}`` or ``{kind = "categorical",
            values = [...]}``. Their values lie evenly on the variable's axis, those of a choice in random order. An
            action holds the value of an integer, but the position of a choice in ``values``; the nearest one counts.
        outcomes: ``total`` or ``per-factor``.
        structure: ``known``: ``factor_graph`` has the factors; ``hidden``: it has the variables only.
        agents: Number of agents that share the factors; None: one per factor that adds variables.
        noise_std: Standard deviation of the noise of a total, unit of the function, 0 to 1e12. With k factors, each has
            this divided by sqrt(k), so that their sum is as noisy as a total.
        relative_noise: Added to ``noise_std``: this share of the function's ``spread()``.
        failure_rate: Probability that an evaluation fails.
        reward: ``task``: an equal share of the true total; 0 if the function failed. ``team``: an equal share of the
            sum of all measurements. ``own``: the agent's measurement, or with totals an equal share of it; 0 if it
            failed.
        max_cycles: Rounds of an episode, >= 1.
        render_mode: ``rgb_array`` (picture), ``ansi`` (text), ``human`` (text to the terminal after every round), None.

    Raises:
        ConfigError: If an argument is wrong; the message has its path.

    Example:
        >>> from swarmbo_envs import function_v0
        >>> env = function_v0.parallel_env(function="camel", max_cycles=2)
        >>> observations, infos = env.reset(seed=0)
        >>> actions = {"agent_0": np.array([0.0898]), "agent_1": np.array([-0.7127])}
        >>> *_, infos = env.step(actions)
        >>> round(infos["agent_0"]["measurement"], 4)
        1.0316
    """

    _action_in_words, _state_format = "values of the agent's own variables", ("function", 1)

    def __init__(self, *, function: str | AdditiveFunction = "powell", **settings: Any) -> None:
        name = function.name if isinstance(function, AdditiveFunction) else function
        s = self._settings_of({"function": name, **settings})
        self._source = function
        self.function = f = self._build_function(s, s.function_seed)
        self._scopes = {factor: tuple(f.variables[j] for j in scope) for factor, scope in f.scopes.items()}
        visible_scopes = self._scopes if s.structure == "known" else {f"alone_{v}": (v,) for v in f.variables}
        agents, self._factor_owners, self._variable_owners = assign_owners(f.variables, visible_scopes, s.agents)
        super().__init__(s, agents)
        if s.worlds == "drawn":
            # a function that ignores its seed, or whose factors depend on it, is no family of worlds
            other = self._build_function(s, s.function_seed + 1)
            X = f.low + rng.sobol(8, f.n_variables, rng.stream(0, "truth points")) * (f.high - f.low)
            if dict(f.scopes) != dict(other.scopes) or np.array_equal(f.value(X), other.value(X)):
                fix = "wanted moved = true, or a function whose seed changes terms, not scopes: wells, additive-gp"
                raise ConfigError(f"got 'drawn' and {f.name}; {fix}", at="$.worlds")
        limits = zip(f.low.tolist(), f.high.tolist(), strict=True)
        self._bounds: dict[str, Any] = dict(zip(f.variables, limits, strict=True)) | dict(f.types)
        self._box = MixedDomain.of(list(MixedDomain.types_of(self._bounds, "$.types").values()))
        owners = list(self._variable_owners.values())
        self._columns = {agent: [j for j, owner in enumerate(owners) if owner == agent] for agent in agents}
        own_bounds = {agent: (f.low[columns], f.high[columns]) for agent, columns in self._columns.items()}
        observed_bounds = {agent: self._with_last_measurement(limits) for agent, limits in own_bounds.items()}
        self._set_spaces(own_bounds, observed_bounds, (np.append(f.low, 0.0), np.append(f.high, 1.0)))

    def _build_function(self, s: FunctionSettings, seed: int) -> AdditiveFunction:
        try:
            source = self._source
            f = source if isinstance(source, AdditiveFunction) else get(source, seed=seed, **s.parameters)
            f = f.moved(seed) if s.moved else f
            f = f.rescaled(seed) if s.rescaled else f
        except ConfigError as error:
            raise ConfigError(error.message, at=error.at.replace("$.environment", "$")) from error
        return typed(f, s.types, seed) if s.types else f

    @cached_property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a total, unit of the function."""
        s = self.settings
        return s.noise_std + (s.relative_noise * self.function.spread() if s.relative_noise else 0.0)

    def _draw(self, number: int) -> None:
        self.function = self._build_function(self.settings, number)
        vars(self).pop("noise_std", None)

    def factor_graph(self) -> dict[str, Any]:
        """Prior knowledge of the function as plain data, in the form of ``swarmbo.worlds.FactorGraphSpec``."""
        is_known = self.settings.structure == "known"
        return {
            "bounds": dict(self._bounds),
            "variable_owners": dict(self._variable_owners),
            "scopes": {factor: list(scope) for factor, scope in self._scopes.items()} if is_known else None,
            "owners": dict(self._factor_owners) if is_known else None,
            "outcomes": self.settings.outcomes,
        }

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links of agents whose variables share a factor; of all pairs if all agents receive the total."""
        groups: Sequence[Collection[str]] = [self.possible_agents]
        if self.settings.outcomes == "per-factor":  # the structure is known then
            owner = self._variable_owners  # one of a factor's variables has the factor's owner
            groups = [dict.fromkeys(owner[v] for v in scope) for scope in self._scopes.values()]  # sets have no order
        return linked(self.possible_agents, [(a, b) for owners in groups for a in owners for b in owners if a < b])

    def ground_truth(self) -> GroundTruth | None:
        """Noise-free function over joint points, for metrics and figures; None if its maximum is unknown."""
        f = self.function
        if f.maximum is None or f.argmax is None:
            return None
        unit = rng.sobol(_N_TRUTH_POINTS, f.n_variables, rng.stream(0, "truth points"))
        points = f.low + unit * (f.high - f.low)
        truth = GroundTruth(points, f.value(points), f.maximum, f.argmax.copy(), "", "", f.name, f.value)
        return replace(truth, maximum_is="reference optimum") if f.types else truth  # with types it is searched

    def at_query(self, number: int) -> None:
        """Seed the noise and the failure of the next step by a query's number, >= 1.

        Outcomes then depend on this number and the joint point only, so copies of this world can evaluate in any order.
        """
        self._set_query(number)

    def _begin(self, seed: int, number: int) -> Episode:
        middle, unmeasured = (self.function.low + self.function.high) / 2.0, np.full(len(self.possible_agents), np.nan)
        return Episode(seed, number, 0, True, middle, unmeasured, [])

    def _play(self, episode: Episode, actions: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        setting = episode.setting.copy()
        for agent, values in actions.items():
            setting[self._columns[agent]] = values
        episode.setting = self._box.on_grid(setting)
        infos, true = self._evaluate(episode)
        for i, info in enumerate(infos.values()):
            episode.last[i] = info.get("measurement", episode.last[i])
        return infos, self._rewards(infos, true if np.isfinite(true) else 0.0)

    def _evaluate(self, episode: Episode) -> tuple[Infos, float]:
        error = ""
        try:
            values = self.function.factor_values(episode.setting[None].copy())[0].astype(float)
        except Exception as problem:  # noqa: BLE001  a crash of a simulation is a failed outcome with a reason
            values, error = np.full(len(self._scopes), np.nan), f"{type(problem).__name__}: {problem}"
        so_far = episode.best[-1] if episode.best else np.nan
        true = float(values.sum())
        episode.best.append(float(np.fmax(so_far, true if np.isfinite(true) else np.nan)))
        names = {"episode": episode.number, "round": episode.round}
        if rng.stream(episode.seed, "environment", "failure", **names).random() < self.settings.failure_rate:
            values, error = np.full_like(values, np.nan), "lost"
        by_factor = rng.stream(episode.seed, "environment", "noise", **names).standard_normal(len(values))
        of_total = self.noise_std * rng.stream(episode.seed, "environment", "total noise", **names).standard_normal()
        noisy = values + self.noise_std / np.sqrt(len(values)) * by_factor
        total = float(values.sum() + of_total)
        columns = self._columns.items()
        return {agent: self._info(agent, episode.setting[own], noisy, total, error) for agent, own in columns}, true

    def _info(self, agent: str, location: Array, noisy: Array, total: float, error: str) -> dict[str, Any]:
        """Info of an agent from the noisy outcomes of all factors and the noisy total; ``error``: "" if none."""
        info: dict[str, Any] = {"location": location, "cost": 0.0}
        outcome = total
        if self.settings.outcomes == "per-factor":
            of_factors = zip(self._scopes, noisy.tolist(), strict=True)
            own = {factor: value for factor, value in of_factors if self._factor_owners[factor] == agent}
            outcome = float(sum(own.values()))
            info["factors"] = {factor: value for factor, value in own.items() if np.isfinite(value)}
        if np.isfinite(outcome):
            info["measurement"] = outcome
        else:
            info["failure"] = error or f"the function returned {outcome}"
        return info

    def state(self) -> Array:
        """The values of all variables, and the share of rounds left."""
        episode = self._current()
        return np.append(episode.setting, episode.share_left(self.max_cycles))

    def _observe(self, episode: Episode) -> dict[str, Array]:
        last, left = self._shown(episode.last), episode.share_left(self.max_cycles)
        own = [np.concatenate([episode.setting[j], [last[i], left]]) for i, j in enumerate(self._columns.values())]
        return dict(zip(self._columns, own, strict=True))

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"name": self.function.name}

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.pictures import function_frame  # figures take a second to import

        episode = self._current()
        return function_frame(self.function, episode.setting, episode.best, self.max_cycles)

    def _text(self) -> str:
        episode = self._current()
        best = f"{episode.best[-1]:.6g}" if episode.best else "-"
        return f"{self.function.name}: round {episode.round} of {self.max_cycles}, best true value {best}\n"


class RobotPushSettings(FunctionSettings, frozen=True):
    """Arguments of the world of pushing robots; see ``RobotPush``."""

    function: Literal["push"] = "push"
    variables: Literal[3, 4, 14] = 3


class RobotPush(FunctionWorld, arguments=RobotPushSettings, name="robot_push_v0"):
    """Robots push objects towards goals: a ``FunctionWorld`` of ``swarmbo_envs.functions.papers.push``.

    One agent has 3 or 4 variables. With 14 there are two agents with seven commands each; the structure is hidden. The
    world's other arguments, its spaces and infos are those of ``FunctionWorld``. Needs the extra box2d.

    Args:
        variables: 3, 4 or 14.
        function_seed: Seed of the goal, for 3 and 4.
        **settings: As for ``FunctionWorld``.

    Raises:
        ConfigError: If an argument is wrong.
        MissingPackageError: Without Box2D.
    """

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {"structure": "hidden", "agents": 2} if settings.get("variables") == 14 else {}
        arguments = {**defaults, **settings}
        checked: RobotPushSettings = self._settings_of(arguments)  # pyright: ignore[reportAssignmentType]
        arguments |= {"function": "push", "parameters": {"n_variables": checked.variables}}
        super().__init__(**arguments)

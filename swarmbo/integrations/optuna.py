"""A sampler for Optuna: trials are a team's queries. Needs the extra ``optuna``."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import outcome_from_user, short, unused_prefix, whole_number
from swarmbo.deciding.team_state import AtomicObject
from swarmbo.errors import ConfigError, SwarmboError, SwarmboWarning, needed
from swarmbo.graph import FactorGraph
from swarmbo.settings import name_hint
from swarmbo.spaces import variables
from swarmbo.team import Team

optuna: Any = needed("optuna", "optuna", "swarmbo.integrations.optuna")

FACTORS = "factors"  # user attribute of a trial with the outcome of each factor
Space = dict[str, Any]  # distributions by parameter
_ROUNDING = 1e-6  # relative
_OF_TRIALS = {
    "bounds": "the ranges are those of the trials' suggestions",
    **dict.fromkeys(("limits", "constraints_func"), "trial.set_constraint states them"),
}


class SwarmboSampler(AtomicObject, optuna.samplers.BaseSampler):
    """Sampler of Optuna: teams of agents suggest the parameters of a study's trials.

    Parameters that occur in the same finished trials, with the same ranges, are a group, for which a team decides. So a
    conditional parameter is learned from the trials that have it. ``independent_sampler`` draws parameters that no team
    decides: all parameters of the first trial, parameters that no trial had yet, and groups whose values were all
    tried, if trials have other parameters.

    Running trials are pending, also those of other processes. From failed trials, a team learns where trials fail.
    Constraints of trials (``trial.set_constraint``) are limits, each with a model; ``constraints_func`` is deprecated
    in Optuna, and not offered. A pruned trial counts with its last reported value, or with all its factors if outcomes
    are per factor, and as failed if it lacks them. Trials that this sampler did not suggest are data, but do not count
    as steps of the method. Threads may share it (``n_jobs``). A pickled sampler continues; a new one for a stored study
    takes all its trials as data. Studies must have one objective.

    Args:
        scopes: ``{factor: [parameter, …]}`` if the objective is a sum of factors, or a ``FactorGraph`` of parameters.
            Parameters in no scope are a factor each. A warning names parameters of scopes that the first trials lack.
            None: the structure is unknown.
        seed: Seed of all randomness; None draws one.
        initial: Points of the initial design of each group, >= 1; existing trials count.
        independent_sampler: Sampler of parameters that no team decides; by default ``TPESampler`` with the seed.
        **settings: ``belief``, ``acquisition``, ``coordination``, ``rounds`` and ``outcomes`` of a ``Team``. With
            ``outcomes="per-factor"``, the objective calls ``trial.set_user_attr("factors", {factor: value})``, and
            returns the sum. ``start``, ``step_limit``, ``safe``, ``constraints`` and ``no_go`` name parameters, and
            are checked once these are known.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> import optuna
        >>> from swarmbo.integrations.optuna import SwarmboSampler
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(sampler=SwarmboSampler(seed=1, initial=4))
        >>> study.optimize(lambda trial: (trial.suggest_float("x", -2.0, 2.0) - 1.0) ** 2, n_trials=15)
        >>> study.best_value < 0.01
        True
    """

    def __init__(
        self,
        *,
        scopes: Mapping[str, Sequence[str]] | FactorGraph | None = None,
        seed: int | None = None,
        initial: int = 10,
        independent_sampler: Any = None,
        **settings: Any,
    ) -> None:
        for name in (name for name in _OF_TRIALS if name in settings):
            raise ConfigError(f"got {name}; wanted none: {_OF_TRIALS[name]}", at=f"$.{name}")
        graph = scopes if isinstance(scopes, FactorGraph | None) else FactorGraph.from_scopes(scopes)
        self.scopes = None if graph is None else {factor: graph.scope(factor) for factor in graph.factors}
        self._unseen = set[str]() if graph is None else set(graph.variables)
        drawn = int(np.random.SeedSequence().generate_state(1)[0])
        self.seed = drawn if seed is None else whole_number(seed, 0, "$.seed", 2**32 - 1)
        bounds = dict.fromkeys(("x",) if graph is None else graph.variables, (0.0, 1.0))
        # refuses wrong settings before the first trial, except those that name parameters, which are not known yet
        lists = {name for name in ("constraints", "no_go") if isinstance(settings.get(name), list | tuple)}
        later = {"start", "step_limit", "safe", *lists}
        parts = {name: part for name, part in settings.items() if name not in later}
        Team(graph, bounds, seed=self.seed, initial=initial, **parts)
        self.initial, self.settings = initial, settings
        self._independent = independent_sampler or optuna.samplers.TPESampler(seed=self.seed)
        if not isinstance(self._independent, optuna.samplers.BaseSampler):
            raise ConfigError(f"got {independent_sampler!r}; wanted a sampler of Optuna", at="$.independent_sampler")
        super().__init__()
        self._groups: list[Space] = []
        self._limits: set[str] = set()
        self._teams: list[_Group] = []

    def reseed_rng(self) -> None:
        """Reseed the independent sampler: threads share the teams, which know the pending points."""
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Any, trial: Any) -> Space:
        """Parameters that all finished trials have, and that can have more than one value."""
        self._raise_error_if_multi_objective(study)
        states = optuna.trial.TrialState
        finished = study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
        if finished and self._unseen:  # warns once
            names = {name for each in finished for name in each.distributions}
            unseen, self._unseen = sorted(self._unseen - names), set()
            if unseen:
                got = f"scopes: got {', '.join(map(repr, unseen))}, which no trial has so far"
                wanted = f"wanted some of {sorted(names)}, or conditional ones of later trials"
                warnings.warn(f"{got}; {wanted}{name_hint(unseen[0], sorted(names))}", SwarmboWarning, stacklevel=2)
        numbers_of: dict[tuple[str, str], tuple[Any, list[int]]] = {}
        for each in finished:
            for name, distribution in each.distributions.items():
                if not distribution.single():  # the key has its text, as choices may be unhashable
                    numbers_of.setdefault((name, repr(distribution)), (distribution, []))[1].append(each.number)
        groups: dict[tuple[int, ...], Space] = {}
        for (name, _), (distribution, numbers) in sorted(numbers_of.items()):
            groups.setdefault(tuple(numbers), {})[name] = distribution
        if len(groups) > 1:
            # outcomes depend on other parameters too: once all values were tried, values need to be repeated
            for trials, space in list(groups.items()):
                if math.prod(_variable(of).axis.count or math.inf for of in space.values()) <= len(trials):
                    del groups[trials]
        with self.lock:
            self._groups = list(groups.values())
            # a new name of a constraint makes new teams, which learn all trials again
            self._limits = {name for each in finished for name in each.constraints}
            usable = [group for group in self._teams if (group.study, group.limits) == (study.study_name, self._limits)]
            self._teams = [group for group in usable if group.space in self._groups]
        return groups.get(tuple(each.number for each in finished), {})

    def sample_relative(self, study: Any, trial: Any, search_space: Mapping[str, Any]) -> dict[str, Any]:
        """Values of parameters, on which a team's agents agree."""
        self._raise_error_if_multi_objective(study)
        return self._suggest(study, trial, dict(search_space)) if search_space else {}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """Value of a parameter that not all finished trials have; its group's team decides if any trial had it."""
        self._raise_error_if_multi_objective(study)
        with self.lock:
            group = next((space for space in self._groups if space.get(param_name) == param_distribution), None)
        if group is None:
            return self._independent.sample_independent(study, trial, param_name, param_distribution)
        return self._suggest(study, trial, group)[param_name]

    def _suggest(self, study: Any, trial: Any, space: Space) -> dict[str, Any]:
        with self.lock:
            key = study.study_name, space
            group = next((group for group in self._teams if (group.study, group.space) == key), None)
            if group is None:
                self._teams.append(group := _Group(self, study, space, self._limits))
            return group.suggest(study, trial)

    def before_trial(self, study: Any, trial: Any) -> None:
        """Pass the call on to the independent sampler."""
        self._independent.before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Sequence[float] | None) -> None:
        """Pass the call on to the independent sampler; the teams learn of the trial at their next query."""
        self._independent.after_trial(study, trial, state, values)


class _Group:
    """A team for a group of parameters, and the trials of one study that it knows.

    ``study`` is its name, ``space`` the distributions by name, ``limits`` the names of constraints. The variables have
    the parameters' values, or the positions of choices if a ``Categorical`` does not accept one of them.
    """

    def __init__(self, sampler: SwarmboSampler, study: Any, space: Space, limits: set[str]) -> None:
        self.study, self.space, self.limits, scopes = study.study_name, space, limits, sampler.scopes
        self.factors = set(scopes or ())
        # two groups with one stream would draw equal initial designs
        seed = int(stream(sampler.seed, "group", *sorted(space)).integers(2**63))
        bounds: dict[str, Any] = {name: _variable(distribution) for name, distribution in space.items()}
        graph = None if scopes is None else _graph(scopes, space)
        usual: dict[str, Any] = {"limits": dict.fromkeys(sorted(limits), (None, 0.0))} if limits else {}
        self.team = Team(graph, bounds, seed=seed, initial=sampler.initial, **usual | sampler.settings)
        self.sign = -1.0 if study.direction == optuna.study.StudyDirection.MINIMIZE else 1.0
        self.pending: dict[int, str] = {}  # ids of queries by number of trial
        self.known: set[int] = set()  # finished trials

    def suggest(self, study: Any, trial: Any) -> dict[str, Any]:
        if (number := trial.number) not in self.pending:
            self._learn(study, number)
            self.pending[number] = self.team.ask().id
            fixed = trial.system_attrs.get("fixed_params", {})  # of an enqueued trial
            if self.space.keys() & fixed.keys() and (point := self._point(self._params(number) | fixed)) is not None:
                self.team.give_up(self.pending[number])
                self.pending[number] = self.team.expect(point)
        return self._params(number)

    def _params(self, number: int) -> dict[str, Any]:
        point, types = self.team.pending[self.pending[number]], self.team.problem.variables
        return {name: of.to_external_repr(types[name].code(point[name])) for name, of in self.space.items()}

    def _learn(self, study: Any, asking: int) -> None:
        states = optuna.trial.TrialState
        for trial in study.get_trials(deepcopy=False):
            number = trial.number
            if number in self.known or number == asking or trial.state == states.WAITING:
                continue
            point = self._point(trial.params)
            if point is not None and number not in self.pending:  # of another process, or not suggested by the team
                self.pending[number] = self.team.expect(point)
            if trial.state == states.RUNNING:
                continue
            self.known.add(number)
            query = self.pending.pop(number, None)
            if point is not None and query is not None:
                try:
                    outcome = self._outcome(trial)
                except SwarmboError:  # raised once, and the study can go on
                    self.team.give_up(query)
                    raise
                # another process may have finished a trial with a new name meanwhile
                measured = {name: value for name, value in trial.constraints.items() if name in self.limits}
                self.team.tell(query, outcome, failed=outcome is None, point=point, constraints=measured)
            elif query is not None:
                self.team.give_up(query)

    def _point(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Variables of a trial's parameters; None if one is missing, or is not in its range."""
        types = self.team.problem.variables
        try:
            point = {name: types[name].value(of.to_internal_repr(params[name])) for name, of in self.space.items()}
        except (KeyError, ValueError):
            return None
        return point if self.team.problem.has_point(point) else None

    def _outcome(self, trial: Any) -> float | dict[str, float] | None:
        """Value to be maximised; None if there is none."""
        is_pruned = trial.state == optuna.trial.TrialState.PRUNED
        reported, factors = trial.intermediate_values, self.team.graph.factors
        value = (reported[max(reported)] if reported else None) if is_pruned else trial.value
        is_by_factor = self.team.outcomes == "per-factor" and len(factors) > 1
        table = trial.user_attrs.get(FACTORS)
        has_all = isinstance(table, Mapping) and set(factors) <= set(table)
        # the reported value of a pruned trial is that of the sum, and its factors may be known in part
        if value is None or not math.isfinite(value) or (is_by_factor and is_pruned and not has_all):
            return None
        if not is_by_factor:
            return self.sign * value
        if not has_all or not set(table) <= self.factors | set(factors):
            wanted = f"trial.set_user_attr({FACTORS!r}, {{factor: value}}) with {list(factors)}"
            raise ConfigError(f"trial {trial.number}: got {short(table)}; with per-factor outcomes wanted {wanted}")
        numbers = {f: outcome_from_user(y, f"{f!r} in trial {trial.number}") for f, y in table.items()}
        total, scale = sum(numbers.values()), sum(map(abs, numbers.values()))
        if not is_pruned and abs(total - value) > _ROUNDING * max(scale, abs(value)):
            got = f"got factors with the sum {total:.10g} and the value {value:.10g}; wanted the sum as the value"
            fix = "; negate the factors" if abs(total + value) <= _ROUNDING * scale else ""
            raise ConfigError(f"trial {trial.number}: {got}{fix}")
        return {f: self.sign * numbers[f] for f in factors}


def _variable(distribution: Any) -> variables.Variable:
    if isinstance(distribution, optuna.distributions.CategoricalDistribution):
        try:
            return variables.Categorical(distribution.choices)
        except ConfigError:
            return variables.Categorical(tuple(range(len(distribution.choices))))
    low, high, is_log = distribution.low, distribution.high, distribution.log
    if isinstance(distribution, optuna.distributions.IntDistribution):
        return variables.Integer(low, high, distribution.step, is_log)
    if not isinstance(distribution, optuna.distributions.FloatDistribution):
        raise ConfigError(f"got {short(distribution)}; wanted a float, an int or a categorical distribution")
    return variables.Real(low, high, is_log, distribution.step)


def _graph(scopes: Mapping[str, Sequence[str]], space: Space) -> FactorGraph:
    """Factors of a group's parameters, and one for each parameter in no scope."""
    group_scopes = {factor: [name for name in scope if name in space] for factor, scope in scopes.items()}
    covered = {name for scope in group_scopes.values() for name in scope}
    prefix = unused_prefix("of ", (*group_scopes, *space))
    group_scopes |= {f"{prefix}{name}": [name] for name in space if name not in covered}
    return FactorGraph.from_scopes({factor: scope for factor, scope in group_scopes.items() if scope})

"""A sampler for Optuna: trials are a team's queries. Needs the extra ``optuna``."""

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from swarmbo.boundary.extras import needed
from swarmbo.boundary.values import short
from swarmbo.deciding.function import FLOOR
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.integrations.codec import Choice, Codec, Number, Parameter, key_of
from swarmbo.team import Team

optuna: Any = needed("optuna", "optuna", "swarmbo.integrations.optuna")

FACTORS = "factors"  # user attribute of a trial with the outcome of each factor


class SwarmboSampler(optuna.samplers.BaseSampler):
    """Suggests the parameters of a study's trials by a team of agents.

    Parameters common to all finished trials of a study, with the same ranges, are chosen together. Others, as those of
    the first trial and conditional ones, are drawn by ``independent_sampler``.

    A number is one variable, logarithmic if its scale is; values with a step are rounded. If all parameters have steps
    or are choices, tried ones are not repeated while a neighbour is untried. A categorical parameter is one-hot: a
    variable in [0, 1] for each choice, of which the largest wins. With one, the default acquisition is
    ``expected-improvement``: a trust region would exclude the other choices.

    Running trials are pending, those of other processes too. Failed trials teach where trials fail. A pruned one counts
    with its last reported value; without any it is ignored. Trials that this sampler did not suggest are data, and no
    steps of the method. Threads may share it (``n_jobs``). A pickle of it continues; a new sampler for a stored study
    takes all its trials as data.

    One objective only; constraints are ignored.

    Args:
        scopes: ``{factor: [parameter, …]}`` if the objective is a sum of factors, or a ``FactorGraph`` of parameters.
            Parameters in no scope are a factor each. None: the structure is unknown.
        seed: Seed of all randomness; None draws one.
        initial: Points of the initial design, >= 1; existing trials count.
        independent_sampler: By default ``RandomSampler`` with the seed.
        **settings: ``belief``, ``acquisition``, ``coordination``, ``rounds`` and ``outcomes`` of a ``Team``. With
            ``outcomes="per-factor"`` the objective reports each, ``trial.set_user_attr("factors", {factor: value})``,
            and returns their sum.

    Raises:
        ConfigError: If scopes are no table of lists of names; when parameters are first suggested, if other settings
            are refused.

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
        if scopes is None:
            self.scopes = None
        else:
            graph = scopes if isinstance(scopes, FactorGraph) else FactorGraph.from_scopes(scopes)
            self.scopes = {factor: graph.scope(factor) for factor in graph.factors}
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self.initial, self.settings = initial, settings
        self._independent = independent_sampler or optuna.samplers.RandomSampler(seed=self.seed)
        self._space = optuna.search_space.IntersectionSearchSpace(include_pruned=True)
        self._lock = threading.RLock()
        self._work: _Work | None = None

    def reseed_rng(self) -> None:
        """Reseed the independent sampler: threads share the team, which knows the pending points."""
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """Parameters common to all finished trials, without those of one value."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            found = self._space.calculate(study)
        return {name: distribution for name, distribution in found.items() if not distribution.single()}

    def sample_relative(self, study: Any, trial: Any, search_space: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters that the team's agents agree on."""
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock:
            work = self._work
            if work is None or not work.is_for(study, search_space):
                self._work = work = _Work(self, study, dict(search_space))
            work.learn(study, trial.number)
            return work.suggest(trial.number)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """A parameter that is not in the common space."""
        self._raise_error_if_multi_objective(study)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Any, trial: Any) -> None:
        """Pass on to the independent sampler."""
        self._independent.before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Sequence[float] | None) -> None:
        """Pass on to the independent sampler; the team learns of the trial at the next query."""
        self._independent.after_trial(study, trial, state, values)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": threading.RLock()}


class _Work:
    """A team, and the trials of one study that it knows.

    ``study`` is its name, ``space`` the distributions by name.
    """

    def __init__(self, sampler: SwarmboSampler, study: Any, space: dict[str, Any]) -> None:
        self.study, self.space = study.study_name, space
        self.codec = Codec({name: _parameter(distribution) for name, distribution in space.items()})
        graph = None if sampler.scopes is None else _graph(sampler.scopes, self.codec)
        has_choices = any(isinstance(parameter, Choice) for parameter in self.codec.parameters.values())
        usual: dict[str, Any] = {"acquisition": "expected-improvement"} if has_choices else {}
        settings = usual | sampler.settings
        self.team = Team(graph, self.codec.bounds, seed=sampler.seed, initial=sampler.initial, **settings)
        self.sign = -1.0 if study.direction == optuna.study.StudyDirection.MINIMIZE else 1.0
        self.pending: dict[int, str] = {}  # ids of queries by number of trial
        self.running: dict[int, dict[str, float]] = {}  # their rounded points
        self.known: set[int] = set()  # completed trials
        self.seen: dict[int, tuple[Any, ...]] = {}  # tried parameters

    def is_for(self, study: Any, space: Mapping[str, Any]) -> bool:
        """True if it is of this study, and these parameters."""
        return study.study_name == self.study and dict(space) == self.space

    def learn(self, study: Any, asking: int) -> None:
        """Learn the results of trials since the last call."""
        states = optuna.trial.TrialState
        for trial in study.get_trials(deepcopy=False):
            if trial.number in self.known or trial.number == asking or trial.state == states.WAITING:
                continue
            point = self.codec.encode(trial.params)
            if point is not None:
                self.seen[trial.number] = key_of(self.codec.decode(point))
            if trial.state == states.RUNNING:
                if point is not None and trial.number not in self.pending:  # of another process
                    self.pending[trial.number] = self.team.expect(point)
                    self.running[trial.number] = point
                continue
            self.known.add(trial.number)
            self._tell(trial, point)

    def _tell(self, trial: Any, point: dict[str, float] | None) -> None:
        query, outcome = self.pending.pop(trial.number, None), self._outcome(trial)
        self.running.pop(trial.number, None)
        says_nothing = outcome is None and trial.state == optuna.trial.TrialState.PRUNED
        if point is None or says_nothing:
            if query is not None:
                self.team.give_up(query)
            return
        if query is None:
            query = self.team.expect(point)
        self.team.tell(query, outcome, failed=outcome is None, point=point)

    def _outcome(self, trial: Any) -> float | dict[str, float] | None:
        """Value to be maximised; None without one."""
        is_pruned = trial.state == optuna.trial.TrialState.PRUNED
        reported = trial.intermediate_values
        value = (reported[max(reported)] if reported else None) if is_pruned else trial.value
        factors = self.team.graph.factors
        if value is None or not math.isfinite(value):
            return None
        if self.team.outcomes == "total" or len(factors) == 1:
            return self.sign * value
        if is_pruned:
            return None  # the reported value is of the sum
        told = trial.user_attrs.get(FACTORS)
        if not isinstance(told, Mapping) or set(told) != set(factors):
            wanted = f"trial.set_user_attr({FACTORS!r}, {{factor: value}}) with {list(factors)}"
            raise ConfigError(f"trial {trial.number}: got {short(told)}; with per-factor outcomes wanted {wanted}")
        return {factor: self.sign * float(outcome) for factor, outcome in told.items()}

    def suggest(self, number: int) -> dict[str, Any]:
        """Parameters of a trial."""
        query = self.team.ask()
        values = self.codec.apart(self.codec.decode(query.point), list(self.running.values()), FLOOR, self.team.seed)
        values = self.codec.unseen(values, set(self.seen.values()), self.team.seed)
        self.pending[number], self.seen[number] = query.id, key_of(values)
        self.running[number] = self.codec.encode(values) or query.point
        return values


def _parameter(distribution: Any) -> Parameter:
    if isinstance(distribution, optuna.distributions.CategoricalDistribution):
        return Choice(tuple(distribution.choices))
    is_whole = isinstance(distribution, optuna.distributions.IntDistribution)
    if not (is_whole or isinstance(distribution, optuna.distributions.FloatDistribution)):
        raise ConfigError(f"got {short(distribution)}; wanted a float, an int or a categorical one")
    step = 1 if is_whole and distribution.log else distribution.step
    return Number(distribution.low, distribution.high, step, distribution.log, is_whole)


def _graph(scopes: Mapping[str, Sequence[str]], codec: Codec) -> FactorGraph:
    """Factors over variables, from factors over parameters: existing ones, and one for each uncovered parameter."""
    there = {factor: [name for name in scope if name in codec.names] for factor, scope in scopes.items()}
    there = {factor: scope for factor, scope in there.items() if scope}
    covered = {name for scope in there.values() for name in scope}
    for name in codec.names:
        if name not in covered:
            there[f"of {name}"] = [name]
    own = {factor: [variable for name in scope for variable in codec.names[name]] for factor, scope in there.items()}
    return FactorGraph.from_scopes(own)

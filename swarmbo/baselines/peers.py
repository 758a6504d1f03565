"""Centralised optimisers of other packages: CMA-ES, BoTorch, Ax and Optuna."""

import logging
from importlib.util import find_spec
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float

from swarmbo.baselines.one_outcome import n_asked, seen_totals, trials
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.errors import needed
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind, name_of
from swarmbo.settings import Count, Fraction, Settings, require, within

_PACKAGES = {"cma-es": ["cma"], "ax": ["ax"], "optuna-gp": ["optuna", "torch"], "optuna-tpe": ["optuna"]}
_PACKAGES |= {"turbo-1": ["torch", "gpytorch"], "botorch-log-nei": ["torch", "gpytorch", "botorch"]}


def peer_package(name: str, method: str) -> Any:
    """A module of the extra ``peers``, for a method; untyped, as type checks run without the extra."""
    return needed(name, "peers", repr(method), at="$.coordination.kind")


def require_packages(method: object) -> None:
    """Refuse a method whose packages are not installed, although it needs them only after the initial design."""
    own = name_of(method) if isinstance(method, Settings) else ""
    for name in _PACKAGES.get(own, ()):
        if find_spec(name) is None:
            peer_package(name, own)


_SAME_POINT = 1e-9  # box widths: a point this near to the requested point is the same, converted to units and back


@kind("coordination", FUNCTION)
class CMAES(Settings, frozen=True, tag_field="kind", tag="cma-es"):
    """Covariance matrix adaptation (CMA-ES), centralised, by its authors' package ``cma`` with its defaults.

    It starts from the best point of the initial design, within the bounds. No state is stored: generations are replayed
    in the order of the history. So a decision depends only on history, pending points and seed. When CMA-ES has
    converged, or finds no differences, it restarts from a random point with twice the population. Needs the extra
    ``peers``.

    Source: Hansen & Ostermeier 2001; restarts: Auger & Hansen 2005 (IPOP).

    Args:
        step: Standard deviation of the first generation, as a share of the domain's sides, in (0, 1].
        population: Number of points in a generation, >= 2; None: 4 + floor(3 log n) with n variables.

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="cma-es").coordination == sb.CMAES()
        True
    """

    step: Fraction = 0.25
    population: Annotated[int, within(2)] | None = None

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Next point (n,) of the present generation, in the unit cube; ``acquisition`` is not used.

        If all points of the generation are pending, further points are drawn from its distribution.
        """
        U, y = seen_totals(situation)
        n = situation.domain.n_dims
        is_chosen = situation.chosen
        attached_late = situation.history.attached & (np.cumsum(is_chosen) > 0)
        y = np.where(attached_late, np.nan, y)  # what was attached after the first decision has no effect
        first = ~is_chosen & np.isfinite(y)  # the initial design, and what was attached before the first decision
        centre = U[first][int(y[first].argmax())] if first.any() else np.full(n, 0.5)
        worst = np.nan_to_num(np.fmin.accumulate(y))[is_chosen]  # so far, as later outcomes change no generation
        U, y, awaited = U[is_chosen], y[is_chosen], np.flatnonzero(~situation.steps()[is_chosen])
        n_back = int(awaited[0]) if len(awaited) else len(U)  # a generation is passed on once it is complete
        restarts, n_told, unit = 0, 0, 1.0
        strategy = self._strategy(situation.seed, restarts, centre)
        while True:
            generation = np.array(strategy.ask())
            size = len(generation)
            if n_told + size > n_back:
                break
            evaluated = U[n_told : n_told + size]
            points = np.where(np.abs(evaluated - generation) <= _SAME_POINT, generation, evaluated)
            outcomes = y[n_told : n_told + size]
            if not n_told:  # the tolerances at which it restarts are absolute
                unit = float(np.ptp(known)) or 1.0 if len(known := outcomes[np.isfinite(outcomes)]) else 1.0
            n_told += size
            strategy.tell(list(points), (-np.where(np.isnan(outcomes), worst[n_told - 1], outcomes) / unit).tolist())
            if strategy.stop():
                restarts += 1
                new_centre = stream(situation.seed, "cma-es baseline", "place", restart=restarts).random(n)
                strategy = self._strategy(situation.seed, restarts, new_centre, 2 * size)
        n_ahead = len(U) - n_told + len(situation.pending) - situation.n_foreign
        while n_ahead >= size:
            generation, n_ahead = np.array(strategy.ask()), n_ahead - size
        return np.clip(generation[n_ahead], 0.0, 1.0), SolveReport(status="not_needed")

    def _strategy(self, seed: int, restart: int, centre: Float[np.ndarray, " n"], population: int | None = None) -> Any:
        rng = stream(seed, "cma-es baseline", "generations", restart=restart)
        options: dict[str, Any] = {
            "bounds": [0.0, 1.0],
            "randn": lambda *shape: rng.standard_normal(shape),  # pyright: ignore[reportUnknownLambdaType]
            "seed": np.nan,  # leaves NumPy's global state alone
            "verbose": -9,
        }
        if (size := population or self.population) is not None:
            options["popsize"] = size
        return peer_package("cma", "cma-es").CMAEvolutionStrategy(centre, self.step, options)


_LOG_NEI = "botorch-log-nei"


@kind("coordination", FUNCTION)
class BoTorchLogNEI(Settings, frozen=True, tag_field="kind", tag=_LOG_NEI):
    """BoTorch's single Gaussian process with its defaults, and log noisy expected improvement, centralised.

    The model is ``SingleTaskGP``, fitted again for each decision. Its priors of lengthscales, which grow with the
    dimension, and of the inferred noise are log-normal. Outcomes are standardised, and points are in the unit cube. The
    acquisition is ``qLogNoisyExpectedImprovement`` with a pruned baseline: improvement over the unknown true values at
    evaluated points. Outcomes of pending points are integrated over. Half of the candidate starts lie around the best
    evaluated points (``sample_around_best``, which is off by default). Needs the extra ``peers``.

    Source: Ament et al. 2023 (log EI and its noisy form); Hvarfner et al. 2024 (priors); Papenmeier et al. 2025 (effect
    of starts around the best in tens of variables).

    Args:
        restarts: Number of starts of L-BFGS-B, >= 1.
        raw_samples: Number of candidate starts in the whole cube, >= ``restarts``; as many lie around the best points.

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="botorch-log-nei").coordination == sb.BoTorchLogNEI()
        True
    """

    restarts: Count = 10
    raw_samples: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "raw_samples", lambda v: v >= self.restarts, "an integer >= `restarts`")

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Point (n,) of the unit cube with the largest log noisy expected improvement; ``acquisition`` is not used."""
        n, report = situation.domain.n_dims, SolveReport(status="not_needed")
        U, y = seen_totals(situation)
        U, y = U[np.isfinite(y)], y[np.isfinite(y)]
        rng = stream(situation.seed, "botorch baseline", evaluations=n_asked(situation))
        if not len(y):
            return rng.random(n), report
        torch, sampling = peer_package("torch", _LOG_NEI), peer_package("botorch.utils.sampling", _LOG_NEI)
        seed = int(rng.integers(2**31))
        pending = torch.tensor(situation.domain.to_unit(situation.out.points), dtype=torch.float64)
        functions = peer_package("botorch.acquisition.logei", _LOG_NEI)
        with sampling.manual_seed(seed):
            model, X = _fitted(U, y)
            best, _ = peer_package("botorch.optim", _LOG_NEI).optimize_acqf(
                functions.qLogNoisyExpectedImprovement(
                    model, X_baseline=X, X_pending=pending if len(pending) else None, prune_baseline=True
                ),
                bounds=torch.stack([torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)]),
                q=1,
                num_restarts=self.restarts,
                raw_samples=self.raw_samples,
                options={"seed": seed, "sample_around_best": True},
            )
        return np.clip(best.detach().numpy()[0], 0.0, 1.0), report


def _fitted(U: Float[np.ndarray, "t n"], y: Float[np.ndarray, " t"]) -> tuple[Any, Any]:
    torch, models = peer_package("torch", _LOG_NEI), peer_package("botorch.models", _LOG_NEI)
    outcome, least = peer_package("botorch.models.transforms.outcome", _LOG_NEI), 64.0 * np.finfo(float).eps
    standardise = outcome.Standardize(m=1, min_stdv=max(least * float(np.abs(y).max()), np.finfo(float).tiny))
    X = torch.tensor(U, dtype=torch.float64)
    model = models.SingleTaskGP(X, torch.tensor(y[:, None], dtype=torch.float64), outcome_transform=standardise)
    evidence = peer_package("gpytorch.mlls", _LOG_NEI).ExactMarginalLogLikelihood(model.likelihood, model)
    peer_package("botorch.fit", _LOG_NEI).fit_gpytorch_mll(evidence)
    return model, X


_AX = "ax"


@kind("coordination", FUNCTION)
class AxDefault(Settings, frozen=True, tag_field="kind", tag=_AX):
    """Ax's ``Client`` with its default generation strategy, centralised.

    Ax transforms and winsorises outcomes, fits a Gaussian process of BoTorch, and maximises log noisy expected
    improvement from 20 of 1,024 points. For each decision, the client is rebuilt from all evaluations. The team's
    initial design replaces Ax's centre and Sobol points. Pending points are running trials, and failed evaluations are
    failed trials. So a decision depends only on history, pending points and seed. Needs the extra ``peers``.

    Source: Ax (Olson et al. 2025), its ``Client``.

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="ax").coordination == sb.AxDefault()
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Next point (n,) by Ax, in the unit cube; ``acquisition`` is not used."""
        handler = peer_package("ax.utils.common.logger", _AX).ROOT_STREAM_HANDLER
        level, rng = handler.level, stream(situation.seed, "ax baseline", evaluations=n_asked(situation))
        handler.setLevel(logging.ERROR)  # avoids some lines for each replayed trial
        try:
            return np.clip(_generated(situation, int(rng.integers(2**31))), 0.0, 1.0), SolveReport(status="not_needed")
        finally:
            handler.setLevel(level)


def _generated(situation: JointSituation, seed: int) -> list[float]:
    api, configs = peer_package("ax.api.client", _AX), peer_package("ax.api.configs", _AX)
    names = [f"x{j}" for j in range(situation.domain.n_dims)]  # Ax parses names as Python
    client = api.Client(random_seed=seed)
    parameters = [configs.RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in names]
    client.configure_experiment(parameters=parameters)
    client.configure_optimization(objective="total")
    client.configure_generation_strategy(
        initialization_budget=situation.initial,
        initialization_random_seed=seed,
        initialize_with_center=False,
        allow_exceeding_initialization_budget=True,  # more Sobol points while no outcome is known, not an error
    )
    for point, status, total in trials(situation):
        trial = client.attach_trial(dict(zip(names, point, strict=True)))
        if status == "complete":
            client.complete_trial(trial, raw_data={"total": total})
        elif status == "failed":
            client.mark_trial_failed(trial)
    ((_, params),) = client.get_next_trials(max_trials=1).items()
    return [params[name] for name in names]


@kind("coordination", FUNCTION)
class OptunaGP(Settings, frozen=True, tag_field="kind", tag="optuna-gp"):
    """Optuna's ``GPSampler`` with its defaults, centralised.

    The model is a Matern-5/2 process with one lengthscale per variable and inferred noise; the acquisition is log
    expected improvement. For each decision, the study is rebuilt from all evaluations in order. The team's initial
    design replaces Optuna's random points. Pending points are running trials, and failed evaluations are failed trials.
    So a decision depends only on history, pending points and seed. Each fit starts from the defaults, not from the
    previous fit as in a persistent study. Needs the extra ``peers``.

    Source: Optuna (Akiba et al. 2019), its ``GPSampler``.

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="optuna-gp").coordination == sb.OptunaGP()
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Point (n,) of the unit cube that the sampler suggests; ``acquisition`` is not used."""
        peer_package("torch", "optuna-gp")  # Optuna imports it late, with a long message
        return _suggested(situation, "GPSampler", "optuna-gp")


@kind("coordination", FUNCTION)
class OptunaTPE(Settings, frozen=True, tag_field="kind", tag="optuna-tpe"):
    """Optuna's default sampler ``TPESampler``, centralised: Parzen estimators of good and of other points.

    The sampler is multivariate since Optuna 5. The study is rebuilt for each decision, as for ``OptunaGP``. Needs the
    extra ``peers``.

    Source: Bergstra et al. 2011; Watanabe 2023; Optuna (Akiba et al. 2019).

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="optuna-tpe").coordination == sb.OptunaTPE()
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Point (n,) of the unit cube that the sampler suggests; ``acquisition`` is not used."""
        return _suggested(situation, "TPESampler", "optuna-tpe")


def _suggested(situation: JointSituation, sampler: str, method: str) -> tuple[Float[np.ndarray, " n"], SolveReport]:
    optuna = peer_package("optuna", method)
    seed = int(stream(situation.seed, "optuna baseline", evaluations=n_asked(situation)).integers(2**31))
    space = {variable: optuna.distributions.FloatDistribution(0.0, 1.0) for variable in situation.graph.variables}
    states, verbosity = optuna.trial.TrialState, optuna.logging.get_verbosity()
    state_of = {"complete": states.COMPLETE, "failed": states.FAIL, "running": states.RUNNING}
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # avoids a line for each study, one per decision
    try:
        made = getattr(optuna.samplers, sampler)(seed=seed, n_startup_trials=situation.initial)
        study = optuna.create_study(direction="maximize", sampler=made)
        for point, status, total in trials(situation):
            params, value = dict(zip(space, point, strict=True)), total if status == "complete" else None
            state = state_of[status]
            study.add_trial(optuna.trial.create_trial(state=state, params=params, distributions=space, value=value))
        params = study.ask(space).params
    finally:
        optuna.logging.set_verbosity(verbosity)
    return np.clip([params[variable] for variable in space], 0.0, 1.0), SolveReport(status="not_needed")

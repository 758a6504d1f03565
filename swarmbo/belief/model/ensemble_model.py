"""Model of a team whose belief is an ensemble."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.ensemble import Ensemble
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.model.incumbents import evaluated
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model
from swarmbo.boundary.rng import stream
from swarmbo.problem.data import Dataset


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleModel(Model):
    """An ensemble, and the members drawn from it for this round.

    ``belief`` are the exact Gaussian processes of the drawn members, so that any acquisition works on an ensemble: a
    member is drawn by weight, then the rule is applied to it (Lu et al. 2022, remark 1).
    """

    ensemble: Ensemble
    chosen: tuple[int, ...]
    out: Float[np.ndarray, "p n"]
    awaited: Bool[np.ndarray, "p k"]

    @cached_property
    def _awaiting(self) -> Ensemble:
        return self.ensemble.condition_on_pending(self.out, self.awaited)

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total over all members at joint points (m, n), physical."""
        mean, variance = self._awaiting.posterior(X)
        return mean, np.sqrt(variance)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of a separately observed factor."""
        mean, variance = self._awaiting.factor_posterior(factor, X)
        return mean, np.sqrt(variance)

    def factor_means(self) -> Float[np.ndarray, "k t"]:
        """Mean of each factor over all members."""
        return self.ensemble.factor_means(evaluated(self.belief))


def learn_ensemble(
    situation: JointSituation, settings: EnsembleSettings, previous: Learned | None, last: Model | None = None
) -> EnsembleModel:
    """Ensemble of a history, continued from the ``last`` model if the history does, and members drawn by weight."""
    history, n = situation.history, len(situation.history)
    coupled = situation.outcomes == "total" or len(situation.graph.factors) == 1
    # a total adds nothing to the outcomes of all its factors
    totals = np.where(np.isfinite(history.factors).all(axis=1), np.nan, history.totals)
    ensemble = Ensemble.learned(
        settings,
        situation.graph,
        situation.domain,
        Dataset(history.X, totals, history.factors, noise_std=history.noise_std),
        coupled=coupled,
        seed=situation.seed,
        previous=None if previous is None else previous.ensemble,
        last=last.ensemble if isinstance(last, EnsembleModel) else None,
    )
    names = {"round": situation.round, "evaluations": n, "pending": len(situation.pending)}
    rngs = [stream(situation.seed, "ensemble", "member", part=i, **names) for i in range(len(ensemble.parts))]
    chosen = ensemble.choose(rngs)
    likeliest = tuple(int(np.argmax(w)) for w in ensemble.weights)
    fitted_at = max(part.fitted_at for part in ensemble.hyper.parts)
    out = situation.out
    return EnsembleModel(
        belief=ensemble.exact(chosen).condition_on_pending(out.points, awaited=out.awaited),
        learned=Learned(ensemble.hyper.of_members(likeliest), fitted_at, ensemble=ensemble.hyper),
        ensemble=ensemble,
        chosen=chosen,
        out=out.points,
        awaited=out.awaited,
    )

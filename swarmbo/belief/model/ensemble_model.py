"""What a team whose belief is an ensemble learns from its history."""

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

    ``belief`` are the exact Gaussian processes of the drawn members, so that any acquisition that reads a belief works
    on an ensemble: a member is drawn by weight, then the rule is followed for it (Lu et al. 2022, remark 1).

    Args:
        ensemble: Given the data alone.
        chosen: The member that was drawn for each part.
        out: Pending joint points (p, n), physical.
        awaited: Of which factors (p, k) their outcomes are to come.
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
        """The same of a factor that is observed by itself."""
        mean, variance = self._awaiting.factor_posterior(factor, X)
        return mean, np.sqrt(variance)

    def factor_means(self) -> Float[np.ndarray, "k t"]:
        """Over all members."""
        return self.ensemble.factor_means(evaluated(self.belief))


def learn_ensemble(
    situation: JointSituation, settings: EnsembleSettings, previous: Learned | None, last: Model | None = None
) -> EnsembleModel:
    """The ensemble that a history leads to, and a member of each part drawn by weight.

    Args:
        situation: What is known.
        settings: Of the ensemble.
        previous: What was learned before.
        last: The model before; where this history goes on from its, so does the ensemble. It saves time and changes no
            bit of the outcome.
    """
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

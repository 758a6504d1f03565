"""What a team whose belief is an ensemble learns from its history."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.acquisition.incumbents import evaluated, incumbent
from swarmbo.acquisition.joint_situation import JointSituation
from swarmbo.acquisition.model import Learned, Model
from swarmbo.belief.ensemble import Ensemble, Evaluations
from swarmbo.belief.ensemble_settings import EnsembleHyperparameters, EnsembleSettings
from swarmbo.rng import stream


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleModel(Model):
    """An ensemble, and the members drawn from it for this round.

    ``belief`` are the exact Gaussian processes of the drawn members, so that any acquisition that reads a belief works
    on an ensemble: a member is drawn by weight, then the rule is followed for it (Lu et al. 2022, remark 1).

    Args:
        ensemble: Given the data alone.
        chosen: The member that was drawn for each part.
        pending: Joint points (p, n), physical, that are out.
    """

    ensemble: Ensemble
    chosen: tuple[int, ...]
    pending: Float[np.ndarray, "p n"]

    @cached_property
    def _awaiting(self) -> Ensemble:
        return self.ensemble.awaiting(self.pending)

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total over all members at joint points (m, n), physical."""
        mean, variance = self._awaiting.posterior(np.asarray(X, dtype=float))
        return mean, np.sqrt(variance)

    def incumbent(self) -> Float[np.ndarray, " n"]:
        """The evaluated point with the largest mean over all members, in the unit cube; see ``Model.incumbent``."""
        return incumbent(self.belief, self.ensemble.factor_means(evaluated(self.belief)))


def learn_ensemble(
    situation: JointSituation, settings: EnsembleSettings, previous: Learned | None, last: Model | None = None
) -> EnsembleModel:
    """The ensemble that a history leads to.

    Between fits it learns evaluation by evaluation, in the order in which they were told; a fit takes all at once.

    Args:
        situation: What is known.
        settings: Of the ensemble.
        previous: What was learned before.
        last: The model before; where this history goes on from its, so does the ensemble. It saves time and changes no
            bit of the outcome.
    """
    history, tied = situation.history, situation.outcomes == "total"
    # a total adds nothing to the outcomes of all its factors
    is_said = np.isfinite(history.factors).all(axis=1) if tied else np.ones(len(history), dtype=bool)
    data = Evaluations(history.X, np.where(is_said, np.nan, history.totals), history.factors)
    ensemble, hyper = None, None if previous is None else previous.ensemble
    if previous is not None and hyper is not None and not _is_due(settings, hyper, previous.fitted_at, data):
        if isinstance(last, EnsembleModel) and last.ensemble.hyper is hyper and data.begins_with(last.ensemble.data):
            ensemble = last.ensemble.updated(data.take(slice(len(last.ensemble.data), None)))
        else:
            first, rest = data.take(slice(previous.fitted_at)), data.take(slice(previous.fitted_at, None))
            seed = _seed(situation, previous.fitted_at)
            ensemble = Ensemble.given(settings, situation.graph, situation.domain, first, hyper, seed=seed)
            ensemble = ensemble.updated(rest)
        learned = previous
    else:
        seed = _seed(situation, len(data))
        ensemble = Ensemble.fitted(settings, situation.graph, situation.domain, data, tied=tied, seed=seed)
        likeliest = tuple(int(np.argmax(w)) for w in ensemble.weights)
        learned = Learned(ensemble.hyper.of_members(likeliest), len(data), ensemble=ensemble.hyper)
    names = {"round": situation.round, "evaluations": len(data), "pending": len(situation.pending)}
    chosen = ensemble.choose(
        [stream(situation.seed, "ensemble", "member", part=i, **names) for i in range(len(ensemble.parts))]
    )
    belief = ensemble.exact(chosen).condition_on_pending(situation.pending)
    return EnsembleModel(belief=belief, learned=learned, ensemble=ensemble, chosen=chosen, pending=situation.pending)


def _is_due(settings: EnsembleSettings, hyper: EnsembleHyperparameters, fitted_at: int, data: Evaluations) -> bool:
    """Whether members are to be fitted anew: on schedule, and as long as outcomes had not shown their scale."""
    since = data.take(slice(fitted_at, None))
    totals, factors = bool(np.isfinite(since.totals).any()), np.isfinite(since.factors)
    is_waiting = any(
        not part.is_shown and (totals or bool(factors[:, list(part.factors)].any())) for part in hyper.parts
    )
    return is_waiting or len(data) - fitted_at >= settings.refit_every


def _seed(situation: JointSituation, fitted_at: int) -> int:
    return int(stream(situation.seed, "ensemble", evaluations=fitted_at).integers(2**63))

"""Models on a learned or drawn graph instead of the team's.

Every agent computes the structure from the history and the team's seed, so agreeing on it costs no messages. Variables
and their owners stay those of the team; a factor belongs to the owner of its first variable.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Bool

from swarmbo.belief.gp.additive_given import regrouped
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model.groupings import graph_of_groups
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model
from swarmbo.belief.structure.choice import LearnedStructure, choose_structure
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph

Learner = Callable[[JointSituation, AdditiveGPSettings, Learned | None], Model]


def learn_model(
    learn: Learner, situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None
) -> Model:
    """Model by a learner (mostly an acquisition's ``learn``), on the team's graph or on the one that settings ask for.

    Hyper-parameters are carried over between structures, and refitted when they are due.
    """
    if settings.structure is None:
        return learn(situation, settings, previous)
    history, n = situation.history, len(situation.history)
    structure = choose_structure(
        settings.structure,
        settings,
        situation.domain.to_unit(history.X),
        history.totals,
        history.known_noise[:, 0] ** 2,
        stream(situation.seed, "structure", evaluations=n),
        None if previous is None else previous.structure,
        n,
    )
    inside = in_structure(situation, structure)
    shares = dict(zip(inside.graph.factors, structure.shares, strict=False))
    priors = {factor: FactorPrior(outputscale_median=share) for factor, share in shares.items()}
    own = msgspec.structs.replace(settings, structure=None, factors=priors)
    model = learn(inside, own, _carried_over(situation, settings, previous, structure))
    return replace(model, learned=msgspec.structs.replace(model.learned, structure=structure))


def in_structure(situation: JointSituation, structure: LearnedStructure | None) -> JointSituation:
    """Situation on the graph of a structure with known totals; unchanged without one."""
    if structure is None:
        return situation
    history, graph = situation.history, _graph(situation, structure)
    unknown = np.full((len(history), len(graph.factors)), np.nan)

    def of_all(mask: Bool[np.ndarray, "t k"] | None) -> Bool[np.ndarray, "t m"] | None:
        """Mask of the total, if it holds for any of the team's factors; none of single factors."""
        return None if mask is None else np.repeat(mask.any(axis=1, keepdims=True), len(graph.factors), axis=1)

    noise = np.column_stack([history.known_noise[:, 0], unknown])
    masks = {"awaited": of_all(history.awaited), "taken": of_all(history.taken)}
    told = replace(history, factors=unknown, noise_std=noise, **masks)
    return replace(situation, graph=graph, history=told, structure="learned", failed=of_all(situation.failed))


def _graph(situation: JointSituation, structure: LearnedStructure) -> FactorGraph:
    variables = situation.graph.variables
    return graph_of_groups(situation.graph, [[variables[i] for i in scope] for scope in structure.scopes])


def _carried_over(
    situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None, structure: LearnedStructure
) -> Learned | None:
    """Learned state, as far as it holds for another structure."""
    if previous is None or previous.structure is None or previous.structure.scopes == structure.scopes:
        return previous
    before = previous.structure
    if 1 in (len(before.scopes), len(structure.scopes)):  # one factor has models that a sum cannot have
        return None
    kept = {i: before.scopes.index(scope) for i, scope in enumerate(structure.scopes) if scope in before.scopes}
    old, new = _graph(situation, before), _graph(situation, structure)

    def moved(hyper: AdditiveHyperparameters) -> AdditiveHyperparameters:
        out = regrouped(hyper, old, new, kept, settings.kernel)
        return _with_prior_of(out, hyper.in_one_unit()) if len(kept) == len(new.factors) else out

    candidate_models = tuple((place, moved(of)) for place, of in previous.candidate_models)
    return msgspec.structs.replace(
        previous, hyperparameters=moved(previous.hyperparameters), candidate_models=candidate_models
    )


def _with_prior_of(hyper: AdditiveHyperparameters, whole: AdditiveHyperparameters) -> AdditiveHyperparameters:
    """After a mere removal of scopes: mean and variance of the sum stay equal."""
    k, growth = len(hyper.constants), sum(whole.outputscales) / sum(hyper.outputscales)
    outputscales = tuple(variance * growth for variance in hyper.outputscales)
    return msgspec.structs.replace(hyper, constants=(whole.constant / k,) * k, outputscales=outputscales)

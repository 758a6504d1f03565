"""Time to propose a structure, and to ask with five sampled ones."""

import functools
import itertools
import statistics
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.belief import AdditiveGPSettings
from swarmbo.belief.model.partitions import random_blocks, sample_partitions
from swarmbo.belief.model.structure import ScopeEvidence, candidates, promises
from swarmbo.boundary.rng import stream
from swarmbo_envs.functions import AdditiveFunction, get

from .timing import own_seconds as seconds

N_EVALUATIONS = 100


def powell_data() -> tuple[np.ndarray, np.ndarray]:
    function, rng = get("powell"), stream(0, "benchmark")
    U = rng.random((N_EVALUATIONS, 24))
    return U, function.value(function.low + U * (function.high - function.low))


def powell_team(function: AdditiveFunction, belief: dict[str, Any], *, is_known: bool) -> sb.Team:
    bounds = dict(zip(function.variables, np.stack([function.low, function.high], 1).tolist(), strict=True))
    scopes = {factor: [function.variables[j] for j in scope] for factor, scope in function.scopes.items()}
    return sb.Team(sb.FactorGraph.from_scopes(scopes) if is_known else None, bounds, belief=belief, seed=0)


def test_a_proposal_with_its_refit_of_24_variables_at_100(benchmark: Any) -> None:
    """One split or merge of blocks of about four, fitted; the present state was fitted before."""
    U, y = powell_data()
    blocks = random_blocks(24, 4, stream(0, "blocks"))
    start = ScopeEvidence(AdditiveGPSettings(), U, y).fit(blocks).starting_point()

    numbers = itertools.count()

    def prepare() -> tuple[tuple[ScopeEvidence, np.random.Generator], dict[str, Any]]:
        evidence = ScopeEvidence(AdditiveGPSettings(), U, y, start)
        evidence(blocks)
        return (evidence, stream(next(numbers), "proposal")), {}

    def move(evidence: ScopeEvidence, rng: np.random.Generator) -> None:
        sample_partitions(blocks, evidence, rng, 1)

    with threadpool_limits(1, user_api="blas"):
        benchmark.pedantic(move, setup=prepare, rounds=30, warmup_rounds=2)
        this_s = statistics.median(seconds(functools.partial(move, *prepare()[0]), repeat=1) for _ in range(15))
        cold_s = seconds(lambda: ScopeEvidence(AdditiveGPSettings(), U, y)(blocks))
    benchmark.extra_info["this_over_cold_fit"] = this_s / cold_s


def test_ranking_all_pairs_of_24_variables_at_100(benchmark: Any) -> None:
    """The score test of 276 pairs on top of single variables, beside one fit of these."""
    U, y = powell_data()
    evidence, alone = ScopeEvidence(AdditiveGPSettings(), U, y), tuple((i,) for i in range(24))
    fit, added = evidence.fit(alone), candidates(alone, 2)
    with threadpool_limits(1, user_api="blas"):
        benchmark(lambda: promises(fit, evidence, added, stream(0, "score")))
        this_s = seconds(lambda: promises(fit, evidence, added, stream(0, "score")))
        fit_s = seconds(lambda: ScopeEvidence(AdditiveGPSettings(), U, y)(alone))
    assert len(added) == 276
    benchmark.extra_info["this_over_fit"] = this_s / fit_s


def test_ask_with_five_sampled_structures_on_powell_after_100_evaluations(benchmark: Any) -> None:
    """24 variables: ten proposals, a refit of the merged graph, and the agreement; beside a known graph's ask."""
    function = get("powell", moved=True)
    sampled = {"kind": "additive", "structure": {"kind": "sampled", "samples": 5}}
    teams = {
        True: powell_team(function, {"kind": "additive"}, is_known=True),
        False: powell_team(function, sampled, is_known=False),
    }
    states = {}
    with threadpool_limits(1, user_api="blas"):
        U, y = powell_data()
        for is_known, team in teams.items():
            team.attach(function.low + U[:-4] * (function.high - function.low), y[:-4])
            for _ in range(4):
                query = team.ask()
                team.tell(query, float(function.value(np.array([list(query.point.values())]))[0]))
            states[is_known] = team.state_dict()
            states[is_known]["json"]["learned"]["fitted_at"] = 1  # so that a fit is due
        states[False]["json"]["learned"]["structure"]["chosen_at"] = 1  # and a structure

        def prepare(is_known: bool = False) -> tuple[tuple[sb.Team], dict[str, Any]]:
            return (teams[is_known].load_state_dict(states[is_known]),), {}

        asked = benchmark.pedantic(lambda team: team.ask(), setup=prepare, rounds=10, warmup_rounds=1)
        taken = {known: [seconds(prepare(known)[0][0].ask, repeat=1) for _ in range(5)] for known in teams}
    structure = teams[False].model.learned.structure
    assert structure is not None
    benchmark.extra_info["factors"] = len(structure.scopes)
    benchmark.extra_info["this_over_known_graph"] = statistics.median(taken[False]) / statistics.median(taken[True])
    assert len(asked.point) == 24

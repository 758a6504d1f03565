"""Time to ask with five sampled structures."""

import statistics
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import swarmbo as sb
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


def test_ask_with_five_sampled_structures_on_powell_after_100_evaluations(benchmark: Any) -> None:
    """24 variables: ten proposals, a refit of the merged graph, and coordination; compared with a known graph."""
    function = get("powell", moved=True)
    sampled = {"kind": "additive", "structure": {"kind": "sampled", "samples": 5}}
    beliefs = {True: {"kind": "additive"}, False: sampled}
    teams = {known: powell_team(function, belief, is_known=known) for known, belief in beliefs.items()}
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
        states[False]["json"]["learned"]["structure"]["chosen_at"] = 1  # and so is a new structure

        def prepare(is_known: bool = False) -> tuple[tuple[sb.Team], dict[str, Any]]:
            return (teams[is_known].load_state_dict(states[is_known]),), {}

        asked = benchmark.pedantic(lambda team: team.ask(), setup=prepare, rounds=10, warmup_rounds=1)
        taken = {known: [seconds(prepare(known)[0][0].ask, repeat=1) for _ in range(5)] for known in teams}
    structure = teams[False].model.learned.structure
    assert structure is not None
    benchmark.extra_info["factors"] = len(structure.scopes)
    benchmark.extra_info["this_over_known_graph"] = statistics.median(taken[False]) / statistics.median(taken[True])
    assert len(asked.point) == 24

"""What those keep to who choose from what is known alone."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

from swarmbo.acquisition import DBGPUCB, Auto, Situation
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.model import JointSituation
from swarmbo.problem.data import Dataset
from swarmbo.records import SolveReport
from swarmbo.spaces import Domain
from swarmbo.testing.claims import claim, claim_equal, claim_offers, claim_point
from swarmbo.testing.problems import graphs


def check_joint_policy(make: Callable[[], Any]) -> None:
    """Of ``decide_joint``: a point of the unit cube, from the history and the seed."""
    for name, graph, _ in graphs():
        where, n = f"decide_joint() over a {name}", len(graph.variables)
        domain = Domain(np.linspace(-2.0, 0.0, n), np.linspace(1.0, 5.0, n))
        rng = np.random.default_rng(0)
        sides = rng.random((6, n))
        history = Dataset(domain.from_unit(sides), -((sides - 0.4) ** 2).sum(axis=1), np.full((6, 3), np.nan))
        situation = JointSituation(
            graph=graph,
            domain=domain,
            history=history,
            pending=domain.from_unit(rng.random((1, n))),
            outcomes="total",
            links=None,
            round=8,
            horizon=None,
            seed=3,
            initial=4,
            structure="known",
        )
        given = history.X.copy(), history.totals.copy(), situation.pending.copy()
        chosen, report = make().decide_joint(situation, Auto())
        point = claim_point(chosen, np.zeros(n), np.ones(n), where)
        claim(isinstance(report, SolveReport), f"{where}: the report", report, "a SolveReport")
        after = history.X, history.totals, situation.pending
        claim_equal(after, given, f"{where}: the history", "the one that was given")
        again = np.asarray(make().decide_joint(situation, Auto())[0], dtype=float)
        claim_equal(again, point, f"{where}: the point for the same history and seed", "the same")


def check_field_policy(make: Callable[[], Any]) -> None:
    """Of ``decide``: every agent that has somewhere to go is sent to a place of its own list."""
    domain = Domain(np.array([0.0, -50.0]), np.array([100.0, 50.0]))
    rng = np.random.default_rng(0)
    places = domain.from_unit(rng.random((30, 2)))
    agents = ("a", "b", "c", "d")
    candidates = {agent: places[10 * k : 10 * (k + 1)] for k, agent in enumerate(agents)}  # none are left for "d"
    X = domain.from_unit(rng.random((6, 2)))
    situation = Situation(
        agents=agents,
        candidates=candidates,
        positions=dict(zip(agents, X, strict=False)),
        starts=dict(zip(agents, X, strict=False)),
        belief=ExactGP.create(ExactGPSettings(), domain).update(X, rng.normal(size=6)),
        links=nx.path_graph(agents),
        domain=domain,
        round=2,
        horizon=9,
        seed=3,
    )
    given = places.copy(), X.copy()
    decision = make().decide(situation, DBGPUCB())
    claim_offers(decision, "points", "report")
    claim(isinstance(decision.report, SolveReport), "decide(): the report", decision.report, "a SolveReport")
    movers = set(situation.movers)
    claim(set(decision.points) == movers, "decide(): agents with a place", sorted(decision.points), sorted(movers))
    for agent, point in decision.points.items():
        listed = (candidates[agent] == np.asarray(point)).all(axis=1).any()
        claim(listed, f"decide(): the place of {agent!r}", point, f"one of its candidates, {candidates[agent]}")
    claim_equal((places, X), given, "decide(): what is known", "as it was given")
    again = make().decide(situation, DBGPUCB()).points
    claim_equal(again, decision.points, "decide(): the places in the same situation", "the same")

"""How the next joint point is decided, whoever decides: a team in one place, or one agent by messages.

The steps are written once, as a generator. It computes from what is known here, and yields a request where it needs
what others know. A team knows all, and answers at once (``central_driver``); an agent answers by messages
(``swarmbo.agent``). So both decide alike, to the bit.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition import Acquisition, BoxFunctions
from swarmbo.acquisition.penalties import bounded, gone_back, is_met, kept_out, parts_together, spreads
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model import JointSituation, Model
from swarmbo.belief.model.failures import reference, requirements
from swarmbo.belief.model.structured import in_structure
from swarmbo.belief.model.success import Requirement
from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.deadline import has_deadline
from swarmbo.deciding.setup import JointPolicy, Maximiser
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.records import Recommendation, SolveReport
from swarmbo.registry.plugins import checked_as, not_wanted

Out = TypeVar("Out")


class Ranking(NamedTuple):
    """The best evaluated points of the parts of a graph in which several factors share variables.

    Args:
        points: In the unit cube (k, n), best first.
        columns: Variables of these parts; no others are meant to be right.
        beaten: The best (n,) of evaluated and of pending points.
    """

    points: Float[np.ndarray, "k n"]
    columns: Int[np.ndarray, " a"]
    beaten: Float[np.ndarray, " n"]


class Rank(NamedTuple):
    """Which evaluations are worth most to each part; answered by a ``Ranking``, None where all is known here.

    Args:
        belief: What factors are worth; only of own factors it is meant to be right.
        factor_means: What they are worth at evaluated points (k, t), if not as the belief has it.
    """

    belief: AdditiveGP
    factor_means: Float[np.ndarray, "k t"] | None = None


class Gather(NamedTuple):
    """A number of each factor; answered by those of all factors, where only those of own factors were right."""

    graph: FactorGraph
    numbers: Mapping[str, float]


class Whole(NamedTuple):
    """A joint point (n,), of which each factor's owner has its variables right; answered by one that has all of them.

    Of a variable that several factors share, their owners have the same.
    """

    point: Float[np.ndarray, " n"]


class Agree(NamedTuple):
    """Functions of factors, to be maximised in sum; answered by an ``Agreement``.

    Args:
        functions: Only those of own factors may be asked.
        links: Who hears whom; None: everyone hears everyone.
        seed: Of what agents draw.
        again: Whether this is the second agreement in a round.
        shares: Whether all agents know all outcomes, and so what each other's functions are.
    """

    functions: BoxFunctions
    links: "nx.Graph[str] | None"
    seed: int
    again: bool = False
    shares: bool = False


class Expect(NamedTuple):
    """A model and a joint point (n,), physical; answered by the mean and standard deviation of the sum there.

    Only own factors of the model are meant to be right.
    """

    model: Model
    point: Float[np.ndarray, " n"]


Request = Rank | Gather | Whole | Agree | Expect
Steps = Generator[Request, Any, Out]


def ranked_parts(graph: FactorGraph, coordination: object) -> list[tuple[int, FactorGraph]]:
    """The parts of a graph whose agents add up what evaluated points are worth to them, with their numbers.

    Where nobody waits, who owns a variable of an only factor has to know where that is best; else it is told.

    Args:
        graph: Of a belief.
        coordination: How the agents agree.
    """
    parts, is_timed = enumerate(graph.components), has_deadline(coordination)
    return [(i, p) for i, p in parts if len(p.factors) > 1 or (is_timed and len(p.agents) > 1)]


def joint_steps(
    situation: JointSituation,
    model: Model,
    acquisition: Acquisition,
    coordination: Maximiser | JointPolicy,
) -> Steps[tuple[Float[np.ndarray, " n"], SolveReport]]:
    """The next joint point: by an agreement on local functions, or as a baseline has it.

    Args:
        situation: What is known.
        model: What was made of it.
        acquisition: What a point is worth.
        coordination: How the agents agree.

    Returns:
        The point (n,) in the unit cube, and how it was agreed.

    Raises:
        ShapeError: If what comes out is no point.
    """
    if not isinstance(coordination, Maximiser):
        chosen: Any = coordination.decide_joint(situation, acquisition)
        if not (isinstance(chosen, tuple) and len(chosen) == 2 and isinstance(chosen[1], SolveReport)):
            raise not_wanted(chosen, "a point and a SolveReport", coordination, "decide_joint")
        return _checked(chosen[0], situation, coordination), chosen[1]
    inside = in_structure(situation, model.learned.structure)
    functions = checked_as(BoxFunctions, acquisition.local_functions(inside, model), acquisition, "local_functions")
    ranking = yield Rank(model.belief)
    if ranking is not None:
        functions = functions.starting_from(*ranking)
    graph = functions.graph
    names = {"evaluations": len(situation.history), "pending": len(situation.pending)}
    seed = int(stream(situation.seed, "agreement", **names).integers(2**63))
    links = _links(situation, graph)
    if situation.limits:
        spread = yield Gather(graph, spreads(functions, seed))
        functions = kept_out(functions, situation.limits, spread)
    agree = Agree(functions, links, seed, shares=situation.outcomes == "total")
    if needed := (yield from _requirements(inside, model)):
        agreement = yield from _agreed_within(needed, situation, (yield from _best(model, ranking)), agree)
    else:
        agreement = yield agree
    return _checked(agreement.point, situation, coordination), agreement.report


def recommended_steps(problem: Problem, model: Model) -> Steps[Recommendation]:
    """The evaluated point that is worth most in expectation, or one near it where that must not be asked.

    Args:
        problem: What is maximised.
        model: Of all evaluations.
    """
    best = yield from _best(model, (yield Rank(model.belief)))
    point = problem.in_box(problem.kept_out(best))
    mean, std = yield Expect(model, point)
    return Recommendation(point.tolist(), mean, std, problem.named(point))


def _requirements(situation: JointSituation, model: Model) -> Steps[tuple[Requirement, ...]]:
    """What failures require. How far they reach back follows from what outlasts all other factors' outcomes."""
    times: Sequence[TimeCorrelation] = model.belief.hyperparameters.times
    if times and situation.failed is not None and situation.failed.any():
        graph = model.belief.graph
        lengths = {factor: time.lengthscale for factor, time in zip(graph.factors, times, strict=True)}
        lengths = yield Gather(graph, lengths)
        times = [
            msgspec.structs.replace(time, lengthscale=lengths[factor])
            for factor, time in zip(graph.factors, times, strict=True)
        ]
    return requirements(situation, times)


def _best(model: Model, ranking: Ranking | None) -> Steps[Float[np.ndarray, " n"]]:
    """The incumbent, of all variables."""
    best, means = model.incumbent(), model.factor_means()
    if means is not None:
        ranking = yield Rank(model.belief, means)
    if ranking is not None:
        best[ranking.columns] = ranking.points[0, ranking.columns]
    return (yield Whole(best))


def _agreed_within(
    needed: Sequence[Requirement], situation: JointSituation, incumbent: Float[np.ndarray, " n"], agree: Agree
) -> Steps[Agreement]:
    """A joint point that will probably succeed: bounded factor by factor, checked together, and taken back if need be.

    Where the check fails, agents agree once more, each within an equal share of what there is to spare.
    """
    functions = agree.functions
    graph, origin = situation.graph, reference(situation, needed, incumbent)
    spread = yield Gather(functions.graph, spreads(functions, agree.seed))
    agreement = None
    parts = parts_together(graph, needed)
    for tight in (False, True):
        limited = bounded(functions, needed, origin, spread, tight=tight)
        agreement = yield agree._replace(functions=limited, again=tight)
        if is_met(needed, agreement.point, origin):
            break
    point = agreement.point.copy()
    for columns, own, _ in parts:
        back = origin.copy()
        back[columns] = point[columns]
        if not is_met(own, back, origin):
            point[columns] = gone_back(own, back, origin)[columns]
    return replace(agreement, point=point)


def _links(situation: JointSituation, graph: FactorGraph) -> "nx.Graph[str] | None":
    """Who hears whom while agreeing; None: everyone.

    On scopes that are not the team's own, agents must talk who need not be in contact. Such scopes come from totals,
    which reach everybody over a base station where no relay does, and so do messages then.
    """
    links = situation.links
    is_own = graph.scopes == situation.graph.scopes or situation.outcomes != "total"
    return links if links is None or is_own or nx.is_connected(links) else None


def _checked(point: object, situation: JointSituation, coordination: object) -> Float[np.ndarray, " n"]:
    """The point, if it is one: a method may be a user's own."""
    place, n = np.asarray(point, dtype=float), situation.domain.n_dims
    if place.shape != (n,) or not np.isfinite(place).all():
        got = f"shape {place.shape}" if place.shape != (n,) else str(place.tolist())
        raise ShapeError(f"point of {type(coordination).__name__}: got {got}; wanted {n} finite numbers from 0 to 1")
    return place

"""The kinds that teams can be made of, which fit which world, and how each decides a round."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import (
    DBGPUCB,
    DECHBO,
    EGPEI,
    EGPTS,
    AddGPUCB,
    Auto,
    Decision,
    DuMBO,
    ExpectedImprovement,
    Information,
    JointAcquisition,
    JointSituation,
    Learned,
    Model,
    Situation,
    Straddle,
    Thompson,
)
from swarmbo.acquisition.ensemble_model import learn_ensemble
from swarmbo.acquisition.structured import in_structure, learn_model
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.agent import ContinuousCoordination, maximise_with_agents, solve_with_agents
from swarmbo.baselines import (
    CMAES,
    BoTorchLogEI,
    Centralised,
    Greedy,
    Independent,
    IsotropicGP,
    LawnMower,
    Random,
    Sobol,
    Turbo1,
)
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.belief.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.admm import ADMM
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.refined_max_sum import RefinedMaxSum
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport
from swarmbo.rng import stream
from swarmbo.settings import Settings, resolve
from swarmbo.sharing import draw_traffic
from swarmbo.transport import InProcess, Routes

TransportSettings = InProcess

FieldBelief = ExactGPSettings | FusedSettings
FieldAcquisition = DBGPUCB | Information | Straddle
FieldCoordination = Exact | MaxSum | Independent | Greedy | Random | LawnMower

JointBelief = AdditiveGPSettings | EnsembleSettings
JointAcquisitions = AddGPUCB | DECHBO | DuMBO | Thompson | ExpectedImprovement | EGPTS | EGPEI | Auto
JointCoordination = ADMM | RefinedMaxSum | Centralised | Random | Sobol | CMAES | BoTorchLogEI | Turbo1 | IsotropicGP

BeliefSettings = FieldBelief | JointBelief
AcquisitionSettings = FieldAcquisition | JointAcquisitions
CoordinationSettings = FieldCoordination | JointCoordination

DEFAULT_KINDS = {"belief": "exact", "acquisition": "db-gp-ucb", "coordination": "exact", "transport": "in-process"}
JOINT_DEFAULT_KINDS = {"belief": "additive", "acquisition": "auto", "coordination": "admm", "transport": "in-process"}

FIELD_TEAM = "agents that each measure a place of their own in one field"
JOINT_TEAM = "agents that set the variables of one function together"

Kind = TypeVar("Kind")


@runtime_checkable
class Maximiser(Protocol):
    """How agents agree on a joint point: ``ADMM(…)`` is one, and any object with this method."""

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0, /) -> Agreement:
        """A joint point where the sum of the functions is large, and what it took to agree on it.

        Args:
            functions: What to maximise in sum, on a box of the unit cube.
            links: Who hears whom; None means everyone.
            seed: Of what agents draw; a function of the team's seed and history.
        """
        ...


@runtime_checkable
class JointPolicy(Protocol):
    """Who chooses joint points from the history alone: ``Sobol()`` is one, and any object with this method."""

    def decide_joint(
        self, situation: JointSituation, acquisition: Any, /
    ) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """The next joint point (n,), in the unit cube, and how it came about."""
        ...


class Own(NamedTuple):
    """What an object of a user's own must be an instance of, and the same in words."""

    classes: tuple[type, ...] = ()
    in_words: str = ""


NO_OWN = Own()
OWN_ACQUISITION = Own((JointAcquisition,), "an instance of your subclass of swarmbo.JointAcquisition")
OWN_COORDINATION = Own(
    (Maximiser, JointPolicy),
    "an object with maximise(functions, links, seed) or decide_joint(situation, acquisition)",
)


def fitting(given: object, fits: type[Kind] | Any, known: Any, team: str, at: str, own: Own = NO_OWN) -> Any:
    """Settings of a kind that fits a team, from what a user gave for them.

    Args:
        given: A Settings instance, a kind's name, a table, or an object of the user's own.
        fits: The class, or union of classes, that fit.
        known: The union of all kinds.
        team: What it must fit, in words.
        at: Path for messages.
        own: What objects of the user's own must be; by default there can be none.

    Raises:
        ConfigError: If there is no such kind, it does not fit, or a setting of it is refused.

    Example:
        >>> fitting("max-sum", FieldCoordination, CoordinationSettings, FIELD_TEAM, "$.coordination").rounds
        50
    """
    if isinstance(given, own.classes) and not isinstance(given, type):
        return given
    if own.classes and not isinstance(given, str | Mapping | Settings):
        got = f"the class {given.__name__}" if isinstance(given, type) else f"an instance of {type(given).__name__}"
        raise ConfigError(f"got {got}; wanted a kind's name, its settings, or {own.in_words}", at=at)
    members: tuple[Any, ...] = getattr(fits, "__args__", (fits,))
    settings: Any = resolve(given, known, at)
    if not isinstance(settings, members):
        names = ", ".join(repr(member.__struct_config__.tag) for member in members)
        got = settings.__struct_config__.tag
        raise ConfigError(f"got {got!r}, which is not for {team}; wanted {_one_of(names)}", at=f"{at}.kind")
    return settings


def _one_of(names: str) -> str:
    return f"one of {names}" if "," in names else names


def decide(
    situation: Situation,
    acquisition: FieldAcquisition,
    coordination: FieldCoordination,
    transport: TransportSettings,
) -> Decision:
    """Where everybody measures next: by messages over the local acquisitions, or as a baseline has it.

    Args:
        situation: What is known.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: What carries their messages.
    """
    if not isinstance(coordination, Exact | MaxSum):
        return coordination.decide(situation, acquisition)
    problem = acquisition.local_problem(situation)
    if problem is None:
        return Decision({}, SolveReport(status="not_needed"))
    graph, tables, links = problem.graph, problem.tables, situation.links
    if transport.as_agents:
        solution = solve_with_agents(coordination, graph, tables, transport.open(graph.agents, links))
    else:
        solution = coordination.solve(graph, tables, links)
    points: dict[str, np.ndarray] = {}
    for agent, index in solution.assignment.items():
        point = problem.shortlists[agent][index]
        if np.isnan(point).any():
            continue  # it declines
        if solution.value > -np.inf or not any((point == other).all() for other in points.values()):
            points[agent] = point  # max-sum on loops may end in a clash: then the later robot stays
    return Decision(points, solution.report)


def check_belief_fits(belief: JointBelief, acquisition: JointAcquisition) -> None:
    """Refuse an acquisition that can't read a belief.

    Raises:
        ConfigError: If it needs an ensemble and there is none, or makes models of its own of what must be one.
    """
    kind = type(acquisition).__struct_config__.tag
    if isinstance(belief, EnsembleSettings):
        if type(acquisition).learn is not JointAcquisition.learn:
            raise ConfigError(
                f"got {kind!r}, which makes models of its own, with belief = 'ensemble'; wanted one that reads the "
                "belief: 'egp-ts', 'egp-ei', 'thompson', 'expected-improvement', 'dec-hbo' or 'dumbo'",
                at="$.acquisition.kind",
            )
    elif isinstance(acquisition, EGPTS | EGPEI):
        got = type(belief).__struct_config__.tag
        raise ConfigError(f"got {got!r} with acquisition {kind!r}; wanted 'ensemble'", at="$.belief.kind")


def learned_model(
    situation: JointSituation,
    belief: JointBelief,
    acquisition: JointAcquisition,
    previous: Learned | None,
    last: Model | None,
) -> Model:
    """What is made of a history.

    Args:
        situation: What is known.
        belief: Settings of the belief.
        acquisition: May have transforms or models of its own.
        previous: What was learned before the last decision.
        last: The last model; going on from it where that can be done saves time, and changes nothing.
    """
    if isinstance(belief, EnsembleSettings):
        return learn_ensemble(situation, belief, previous, last)
    return learn_model(acquisition, situation, belief, previous)


def decide_joint(
    situation: JointSituation,
    model: Model,
    acquisition: JointAcquisition,
    coordination: Maximiser | JointPolicy,
    transport: TransportSettings,
) -> tuple[Float[np.ndarray, " n"], SolveReport]:
    """The next joint point: by messages over the local functions, or as a baseline has it.

    Args:
        situation: What is known.
        model: What was made of it.
        acquisition: What a point is worth.
        coordination: How the agents agree.
        transport: What carries their messages.

    Returns:
        The point (n,) in the unit cube, and how it was agreed. Traffic includes what a joint draw of the factors costs.

    Raises:
        ConfigError: If agents are to run as such, and the method knows none.
        ShapeError: If what comes out is no point.
    """
    if not isinstance(coordination, Maximiser):
        point, report = coordination.decide_joint(situation, acquisition)
        return _checked(point, situation, coordination), report
    functions = acquisition.local_functions(in_structure(situation, model.learned.structure), model)
    graph = functions.graph
    links = _links(situation, graph)
    names = {"evaluations": len(situation.history), "pending": len(situation.pending)}
    seed = int(stream(situation.seed, "agreement", **names).integers(2**63))
    if transport.as_agents:
        if not isinstance(coordination, ContinuousCoordination):
            raise ConfigError(
                f"got true, but {type(coordination).__name__} knows no agents", at="$.transport.as_agents"
            )
        agreement = maximise_with_agents(coordination, functions, transport.open(graph.agents, links), seed)
    else:
        agreement = coordination.maximise(functions, links, seed)
    report = agreement.report
    if isinstance(functions, SampledFunctions) and model.belief.is_tied:
        drawing = draw_traffic(graph, Routes(graph.agents, links), model.belief.n_data)
        report = msgspec.structs.replace(report, traffic=report.traffic + drawing)
    return _checked(agreement.point, situation, coordination), report


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

"""The kinds that teams can be made of, which fit which team, and what a user's own must be."""

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
    DuMBO,
    ExpectedImprovement,
    Information,
    JointAcquisition,
    JointSituation,
    OutcomeMode,
    Straddle,
    Thompson,
)
from swarmbo.acquisition.structured import check_structure
from swarmbo.baselines import (
    CMAES,
    AxDefault,
    BoTorchLogNEI,
    Centralised,
    Greedy,
    Independent,
    IsotropicGP,
    LawnMower,
    OptunaGP,
    OptunaTPE,
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
from swarmbo.errors import ConfigError
from swarmbo.records import SolveReport
from swarmbo.settings import Settings, resolve
from swarmbo.transport import InProcess

TransportSettings = InProcess

FieldBelief = ExactGPSettings | FusedSettings
FieldAcquisition = DBGPUCB | Information | Straddle
FieldCoordination = Exact | MaxSum | Independent | Greedy | Random | LawnMower

JointBelief = AdditiveGPSettings | EnsembleSettings
JointAcquisitions = AddGPUCB | DECHBO | DuMBO | Thompson | ExpectedImprovement | EGPTS | EGPEI | Auto
Peers = CMAES | BoTorchLogNEI | Turbo1 | OptunaGP | OptunaTPE | AxDefault
JointCoordination = ADMM | RefinedMaxSum | Centralised | Random | Sobol | IsotropicGP | Peers

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


def field_kinds(
    belief: object, acquisition: object, coordination: object, transport: object
) -> tuple[FieldBelief, FieldAcquisition, FieldCoordination, TransportSettings]:
    """The settings that a team in a field is made of, from what a user gave for them.

    Args:
        belief: A kind's name, its settings, or a table. So are the others.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: How messages travel.

    Raises:
        ConfigError: If there is no such kind, it does not fit, or a setting of it is refused.
    """
    own_acquisition = fitting(acquisition, FieldAcquisition, AcquisitionSettings, FIELD_TEAM, "$.acquisition")
    own_coordination = fitting(coordination, FieldCoordination, CoordinationSettings, FIELD_TEAM, "$.coordination")
    own_transport = resolve(transport, TransportSettings, "$.transport")
    own_belief = fitting(belief, FieldBelief, BeliefSettings, FIELD_TEAM, "$.belief")
    return own_belief, own_acquisition, own_coordination, own_transport


def joint_kinds(
    belief: object, acquisition: object, coordination: object, transport: object, outcomes: OutcomeMode
) -> tuple[JointBelief, JointAcquisition, Maximiser | JointPolicy, TransportSettings]:
    """The settings, or objects of a user's own, that a team with a factor graph is made of.

    Args:
        belief: A kind's name, its settings, or a table. So are the others.
        acquisition: What a point is worth; also an instance of a subclass of ``JointAcquisition``.
        coordination: How the agents agree on it; also a ``Maximiser`` or ``JointPolicy``.
        transport: How messages travel.
        outcomes: What the team observes.

    Raises:
        ConfigError: If there is no such kind, it does not fit, or a setting of it is refused.
    """
    own_belief: JointBelief = fitting(belief, JointBelief, BeliefSettings, JOINT_TEAM, "$.belief")
    own_acquisition: JointAcquisition = fitting(
        acquisition, JointAcquisitions, AcquisitionSettings, JOINT_TEAM, "$.acquisition", OWN_ACQUISITION
    )
    check_belief_fits(own_belief, own_acquisition)
    own_coordination: Maximiser | JointPolicy = fitting(
        coordination, JointCoordination, CoordinationSettings, JOINT_TEAM, "$.coordination", OWN_COORDINATION
    )
    if isinstance(own_belief, AdditiveGPSettings):
        check_structure(own_belief, own_acquisition, outcomes)
    return own_belief, own_acquisition, own_coordination, resolve(transport, TransportSettings, "$.transport")


def to_plain(kind: object) -> Any:
    """A kind's settings as plain data; of an object of a user's own only its name.

    Example:
        >>> to_plain(ADMM(penalty=2.0))["penalty"]
        2.0
    """
    return msgspec.to_builtins(kind) if isinstance(kind, msgspec.Struct) else {"kind": type(kind).__name__}

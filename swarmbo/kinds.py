"""What the parts of a team must be: kinds that swarmbo knows, or objects of a user's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import EGPEI, EGPTS, ChainAcquisition, Decision, JointAcquisition
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.structure_check import check_structure
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, OutcomeMode
from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.errors import ConfigError
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, Slot, Team, name_of, settings_of
from swarmbo.settings import Settings
from swarmbo.transport import InProcess

DEFAULT_KINDS: Mapping[Team, Mapping[str, str]] = {
    FIELD: {"belief": "exact", "acquisition": "db-gp-ucb", "coordination": "exact", "transport": "in-process"},
    FUNCTION: {"belief": "additive", "acquisition": "auto", "coordination": "admm", "transport": "in-process"},
}

Given = Settings | str | Mapping[str, Any]  # of a part: its settings, the name of its kind, or a table
FieldBelief = ExactGPSettings | FusedSettings
JointBelief = AdditiveGPSettings | EnsembleSettings


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


@runtime_checkable
class Planner(Protocol):
    """Who sends agents to places from what is known alone: ``Greedy()`` is one."""

    def decide(self, situation: Situation, acquisition: Any, /) -> Decision:
        """Where each agent that has somewhere to go measures next, and how that came about."""
        ...


@dataclass(frozen=True)
class Own:
    """What an object of a user's own must be an instance of, and the same in words."""

    classes: tuple[type, ...]
    in_words: str


OWN: Mapping[tuple[Slot, Team], Own] = {
    ("acquisition", FUNCTION): Own((JointAcquisition,), "an instance of your subclass of swarmbo.JointAcquisition"),
    ("coordination", FUNCTION): Own(
        (Maximiser, JointPolicy),
        "an object with maximise(functions, links, seed) or decide_joint(situation, acquisition)",
    ),
}


def part(slot: Slot, given: object, team: Team) -> Any:
    """A part of a team, from what a user gave for it.

    Args:
        slot: Which part.
        given: A Settings instance, a kind's name, a table, or an object of the user's own, as ``OWN`` has it.
        team: What it must suit.

    Raises:
        ConfigError: If there is no such kind, it does not suit the team, or a setting of it is refused.

    Example:
        >>> part("coordination", "max-sum", FIELD).rounds
        50
    """
    own, at = OWN.get((slot, team)), f"$.{slot}"
    if own is not None and isinstance(given, own.classes) and not isinstance(given, type):
        return given
    if own is not None and not isinstance(given, str | Mapping | Settings):
        got = f"the class {given.__name__}" if isinstance(given, type) else f"an instance of {type(given).__name__}"
        raise ConfigError(f"got {got}; wanted a kind's name, its settings, or {own.in_words}", at=at)
    return settings_of(slot, given, at, team)


def check_belief_fits(belief: JointBelief, acquisition: JointAcquisition) -> None:
    """Refuse an acquisition that can't read a belief.

    Raises:
        ConfigError: If it needs an ensemble and there is none, or makes models of its own of what must be one.
    """
    if isinstance(belief, EnsembleSettings):
        if type(acquisition).learn is not JointAcquisition.learn:
            raise ConfigError(
                f"got {name_of(acquisition)!r}, which makes models of its own, with belief = 'ensemble'; wanted one "
                "that reads the belief: 'egp-ts', 'egp-ei', 'thompson', 'expected-improvement', 'dec-hbo' or 'dumbo'",
                at="$.acquisition.kind",
            )
    elif isinstance(acquisition, EGPTS | EGPEI):
        got = f"got {name_of(belief)!r} with acquisition {name_of(acquisition)!r}"
        raise ConfigError(f"{got}; wanted 'ensemble'", at="$.belief.kind")


def field_kinds(
    belief: object, acquisition: object, coordination: object, transport: object
) -> tuple[FieldBelief, ChainAcquisition, Exact | MaxSum | Planner, InProcess]:
    """The parts that a team in a field is made of, from what a user gave for them.

    Args:
        belief: A kind's name, its settings, or a table. So are the others.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: How messages travel.

    Raises:
        ConfigError: If there is no such kind, it does not fit, or a setting of it is refused.
    """
    return (
        part("belief", belief, FIELD),
        part("acquisition", acquisition, FIELD),
        part("coordination", coordination, FIELD),
        part("transport", transport, FIELD),
    )


def joint_kinds(
    belief: object, acquisition: object, coordination: object, transport: object, outcomes: OutcomeMode
) -> tuple[JointBelief, JointAcquisition, Maximiser | JointPolicy, InProcess]:
    """The parts that a team with a factor graph is made of, from what a user gave for them.

    Args:
        belief: A kind's name, its settings, or a table. So are the others.
        acquisition: What a point is worth; also an instance of a subclass of ``JointAcquisition``.
        coordination: How the agents agree on it; also a ``Maximiser`` or ``JointPolicy``.
        transport: How messages travel.
        outcomes: What the team observes.

    Raises:
        ConfigError: If there is no such kind, it does not fit, or a setting of it is refused.
    """
    own_belief: JointBelief = part("belief", belief, FUNCTION)
    own_acquisition: JointAcquisition = part("acquisition", acquisition, FUNCTION)
    check_belief_fits(own_belief, own_acquisition)
    own_coordination: Maximiser | JointPolicy = part("coordination", coordination, FUNCTION)
    if isinstance(own_belief, AdditiveGPSettings):
        check_structure(own_belief, own_acquisition, outcomes)
    return own_belief, own_acquisition, own_coordination, part("transport", transport, FUNCTION)


def to_plain(part: object) -> Any:
    """A part's settings as plain data; of an object of a user's own only its name.

    Example:
        >>> from swarmbo.coordination.methods.admm import ADMM
        >>> to_plain(ADMM(penalty=2.0))["penalty"]
        2.0
    """
    return msgspec.to_builtins(part) if isinstance(part, msgspec.Struct) else {"kind": type(part).__name__}

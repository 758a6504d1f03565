"""What a team is made of: a problem, parts of kinds that swarmbo knows or of a user's own, and a seed."""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float
from msgspec import UNSET
from numpy.typing import ArrayLike

from swarmbo.acquisition import EGPEI, EGPTS, Acquisition, ChainAcquisition, Decision
from swarmbo.acquisition.add_gp_ucb import check_structure
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.boundary.values import short, whole_number
from swarmbo.coordination import Solution
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import load_kernels, unloaded_kernels
from swarmbo.problem import Problem
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, SLOTS, TEAMS, Slot, Team, is_kind, name_of, settings_of
from swarmbo.registry.plugins import full_name, is_own, load_class, make, takes, takes_anything
from swarmbo.settings import Settings
from swarmbo.spaces import Domain
from swarmbo.transport import Faults, InProcess

DEFAULT_KINDS: Mapping[Team, Mapping[str, str]] = {
    FIELD: {"belief": "exact", "acquisition": "auto", "coordination": "exact", "transport": "in-process"},
    FUNCTION: {"belief": "additive", "acquisition": "auto", "coordination": "admm", "transport": "in-process"},
}

_INITIAL = 10  # points of an initial design
_MOST_ROUNDS = 10**9

_ARGUMENTS = (
    *("bounds", "belief", "acquisition", "coordination", "transport", "seed", "rounds", "outcomes", "initial"),
    *("variable_owners", "no_go"),
)
_MAXIMISES = "none: what is asked for maximises; for a minimum tell the negative of each outcome"
_REGIONS = "no_go=[…] for regions that must not be asked, and None told as the outcome of what failed"
_INSTEAD = {
    **dict.fromkeys(("maximize", "maximise", "minimize", "minimise", "direction", "directions", "mode"), _MAXIMISES),
    **dict.fromkeys(("constraints", "constraint", "constraints_func"), _REGIONS),
}

Given = Settings | str | Mapping[str, Any]  # of a part: its settings, the name of its kind, or a table


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


class OwnFieldBelief(Protocol):
    """What a team in a field believes, of a user's own."""

    def prior(self, domain: Domain, /) -> Any:
        """What it believes before any data: what ``ExactGP`` offers, and never changed by what is learned."""
        ...

    def restored(self, domain: Domain, state: Mapping[str, Any], /) -> Any:
        """What it believed when ``state_dict`` of its belief was written."""
        ...


class OwnJointBelief(Protocol):
    """What a team with a factor graph makes of its history, of a user's own."""

    def learn(self, situation: JointSituation, acquisition: Any, previous: Learned | None, /) -> Model:
        """A belief about the sum, and what the next one needs; a pure function of the arguments."""
        ...


Carrying = InProcess | Faults  # what may carry agents' messages
FieldBelief = ExactGPSettings | FusedSettings | OwnFieldBelief
JointBelief = AdditiveGPSettings | EnsembleSettings | OwnJointBelief


@runtime_checkable
class Solver(Protocol):
    """How agents agree on places of their shortlists: ``MaxSum(…)`` and ``Exact(…)`` are two."""

    def solve(
        self, graph: FactorGraph, tables: Mapping[str, ArrayLike], links: "nx.Graph[Any] | None" = None, /
    ) -> Solution:
        """A joint choice where the sum of the tables is large, and what it took to agree on it."""
        ...


@dataclass(frozen=True)
class Role:
    """What a class of a user's own must be to take the place of a kind.

    Args:
        methods: What it must have of its own, and the arguments of each.
        enough: How many of them.
        base: What it must derive from. Its own methods do not count.
        abstract: Classes derived from that whose methods do not count either.
        in_words: The same in words.
    """

    methods: Mapping[str, tuple[str, ...]]
    in_words: str
    base: type = object
    enough: int = 1
    abstract: tuple[type, ...] = ()

    def require(self, own: type, name: str, at: str) -> None:
        """Refuse a class that is none.

        Args:
            own: The class.
            name: Of it, for messages.
            at: Path for messages.

        Raises:
            ConfigError: If it derives from something else, lacks a method, or one takes other arguments.
        """
        there = {method: getattr(own, method) for method in self.methods if callable(getattr(own, method, None))}
        for base in (self.base, *self.abstract):
            there = {method: taken for method, taken in there.items() if taken is not getattr(base, method, None)}
        if not issubclass(own, self.base) or len(there) < self.enough:
            raise ConfigError(f"got {name}; wanted {self.in_words}", at=at)
        for method, taken in there.items():
            wanted = self.methods[method]
            if not takes(taken, "self", *wanted):
                got = f"{name}.{method}{inspect.signature(taken)}"
                raise ConfigError(f"got {got}; wanted {method}(self, {', '.join(wanted)})", at=at)


ROLES: Mapping[tuple[Slot, Team], Role] = {
    ("acquisition", FIELD): Role(
        {"utility": ("situation", "n_agents"), "local_problem": ("situation",)},
        "your subclass of swarmbo.ChainAcquisition with utility(situation, n_agents), or of swarmbo.Acquisition with "
        "local_problem(situation)",
        base=Acquisition,
        abstract=(ChainAcquisition,),
    ),
    ("acquisition", FUNCTION): Role(
        {"local_functions": ("situation", "model")},
        "your subclass of swarmbo.Acquisition, with local_functions(situation, model)",
        base=Acquisition,
    ),
    ("coordination", FIELD): Role(
        {"solve": ("graph", "tables", "links"), "decide": ("situation", "acquisition")},
        "an object with solve(graph, tables, links) or decide(situation, acquisition)",
    ),
    ("coordination", FUNCTION): Role(
        {"maximise": ("functions", "links", "seed"), "decide_joint": ("situation", "acquisition")},
        "an object with maximise(functions, links, seed) or decide_joint(situation, acquisition)",
    ),
    ("belief", FIELD): Role(
        {"prior": ("domain",), "restored": ("domain", "state")},
        "an object with prior(domain) and restored(domain, state)",
        enough=2,
    ),
    ("belief", FUNCTION): Role(
        {"learn": ("situation", "acquisition", "previous")}, "an object with learn(situation, acquisition, previous)"
    ),
}


def part(slot: Slot, given: object, team: Team) -> Any:
    """A part of a team, from what a user gave for it.

    Args:
        slot: Which part.
        given: A Settings instance, a kind's name, a table, ``"module:Class"`` as name or kind for a class of the user's
            own, which is loaded and made of the rest of the table, or an object of such a class.
        team: What it must suit.

    Raises:
        ConfigError: If there is no such kind, it does not suit the team, or a setting of it is refused.

    Example:
        >>> part("coordination", "max-sum", FIELD).rounds
        50
    """
    at, role = f"$.{slot}", ROLES.get((slot, team))
    table: Mapping[str, Any] = given if isinstance(given, Mapping) else {"kind": given}
    if role is not None and is_own(name := table.get("kind")):
        own = load_class(name, f"{at}.kind")
        role.require(own, name, f"{at}.kind")
        return make(own, name, {key: value for key, value in table.items() if key != "kind"}, at)
    if role is None or isinstance(given, str | Mapping) or is_kind(given):
        known = settings_of(slot, given, at, team)
        if slot == "belief":
            load_kernels(known)
        return known
    if isinstance(given, type):
        wanted = f"a kind's name, its settings, or an instance of {role.in_words}"
        raise ConfigError(f"got the class {given.__name__}; wanted {wanted}", at=at)
    role.require(type(given), f"an instance of {type(given).__name__}", at)
    return given


def check_belief_fits(belief: JointBelief, acquisition: Acquisition) -> None:
    """Refuse an acquisition that can't read a belief.

    Raises:
        ConfigError: If it needs an ensemble and there is none, or makes models of its own of what must be one.
    """
    if isinstance(belief, EnsembleSettings):
        if type(acquisition).learn is not Acquisition.learn:
            raise ConfigError(
                f"got {name_of(acquisition)!r}, which makes models of its own, with belief = 'ensemble'; wanted one "
                "that reads the belief: 'egp-ts', 'egp-ei', 'thompson', 'expected-improvement', 'dec-hbo' or 'dumbo'",
                at="$.acquisition.kind",
            )
    elif isinstance(belief, AdditiveGPSettings) and isinstance(acquisition, EGPTS | EGPEI):
        got = f"got {name_of(belief)!r} with acquisition {name_of(acquisition)!r}"
        raise ConfigError(f"{got}; wanted 'ensemble'", at="$.belief.kind")


def check_of_account(acquisition: Acquisition, team: Team) -> None:
    """Refuse settings that would change nothing.

    Args:
        acquisition: Whose.
        team: What they are of.

    Raises:
        ConfigError: If one of an acquisition for both kinds of team is set that only the other kind looks at.
    """
    ignored, usual = acquisition.for_fields if team == FUNCTION else acquisition.for_functions, type(acquisition)()
    for field in ignored:
        if (got := getattr(acquisition, field)) != getattr(usual, field):
            raise ConfigError(
                f"got {short(got)}, which changes nothing for {TEAMS[team]}; leave it out", at=f"$.acquisition.{field}"
            )


def refuse_unknown(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that neither a team nor an agent takes.

    Raises:
        ConfigError: It says what does what they would.
    """
    for name, given in arguments.items():
        near = difflib.get_close_matches(name, _ARGUMENTS, n=1)
        wanted = f"some of {', '.join(_ARGUMENTS)}" + (f"; did you mean {near[0]!r}?" if near else "")
        raise ConfigError(f"unknown argument, got {short(given)}; wanted {_INSTEAD.get(name, wanted)}", at=f"$.{name}")


def check_named(transport: Carrying, problem: Problem) -> None:
    """Refuse a schedule of faults of agents that there are not.

    Raises:
        ConfigError: If there are such.
    """
    if isinstance(transport, Faults) and (strangers := sorted(transport.named - set(problem.agents))):
        wanted = f"some of {short(list(problem.agents))}"
        raise ConfigError(f"got faults of {short(strangers)}; wanted {wanted}", at="$.transport")


def to_plain(part: object) -> Any:
    """A part's settings as plain data; of an object of a user's own its class is the kind.

    Example:
        >>> from swarmbo.coordination.methods.admm import ADMM
        >>> to_plain(ADMM(penalty=2.0))["penalty"]
        2.0
    """
    plain: dict[str, Any] = msgspec.to_builtins(part) if isinstance(part, msgspec.Struct) else {}
    return plain if is_kind(part) else {**plain, "kind": full_name(part)}


def settings_again(settings: Mapping[str, Any], given: Mapping[str, object], trust: bool = False) -> dict[str, Any]:
    """The settings of a saved state, with parts of a user's own as they are given again.

    A state may come from anybody: no code is loaded because it names it, unless somebody says that they trust it.

    Args:
        settings: Of the state.
        given: Parts that take the place of the state's; None: the state's is taken.
        trust: Whether code that the state names may be loaded, where its settings are known.

    Raises:
        ConfigError: If the state's part is of a user's own, and not trusted, or the state has its name only.
    """
    again = {**settings, **{slot: own for slot, own in given.items() if own is not None}}
    if not trust and given.get("belief") is None and (unloaded := unloaded_kernels(settings.get("belief"))):
        raise ConfigError(
            f"got the kernel {unloaded[0]!r}, code that swarmbo does not bring; wanted the belief again, belief=…, or "
            "trust=True, which loads it",
            at="$.belief",
        )
    for slot in SLOTS:
        table = settings.get(slot)
        name = table.get("kind") if isinstance(table, Mapping) else table
        if given.get(slot) is not None or not is_own(name):
            continue
        if not trust:
            raise ConfigError(
                f"got {name!r}, code that swarmbo does not bring; wanted it again, {slot}=…, or trust=True, which "
                "loads it where the state has its settings",
                at=f"$.{slot}",
            )
        own = load_class(name, f"$.{slot}.kind")
        if not issubclass(own, msgspec.Struct) and takes_anything(own):
            raise ConfigError(  # made with its defaults, it might be another than was saved
                f"got {name!r}, of which the state has the name only, as it is no swarmbo.settings.Settings; wanted it "
                f"again: {slot}=…",
                at=f"$.{slot}",
            )
    return again


@dataclass(frozen=True, eq=False)
class Setup:
    """What a team is made of, and does not change.

    Args:
        problem: What it works on.
        belief: Settings of what it thinks.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: What carries their messages.
        seed: Drives everything random.
        horizon: Number of rounds planned; None if unknown.
        initial: Points of the initial design; 0 in a field.
    """

    problem: Problem
    belief: Any
    acquisition: Any
    coordination: Any
    transport: Carrying
    seed: int
    horizon: int | None
    initial: int

    @property
    def chooses(self) -> bool:
        """Whether what a query is worth is chosen by what a field is watched for."""
        return self.rule() is not self.acquisition

    def rule(self, *, priced: bool = False) -> Any:
        """What says what a query is worth: the acquisition, or what it chooses for a field.

        Args:
            priced: Whether somebody may decline a measurement now, beside those who always may.
        """
        if not self.problem.is_field:
            return self.acquisition
        return self.acquisition.in_field(self.problem.aim, priced=priced or self.problem.priced)

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        belief: object = UNSET,
        acquisition: object = UNSET,
        coordination: object = UNSET,
        transport: object = UNSET,
        seed: object = 0,
        rounds: object = None,
        initial: object = None,
        **unknown: object,
    ) -> "Setup":
        """A setup of what a user gave; parts that are not given are those that suit the problem.

        Raises:
            ConfigError: If a number is out of range, or a kind is unknown, does not suit the problem or is refused.
        """
        refuse_unknown(unknown)
        horizon = None if rounds is None else whole_number(rounds, 1, "$.rounds", _MOST_ROUNDS)
        if problem.is_field and initial is not None:
            raise ConfigError("a team in a field has no initial design; leave it out", at="$.initial")
        first = (
            0
            if problem.is_field
            else whole_number(_INITIAL if initial is None else initial, 1, "$.initial", _MOST_ROUNDS)
        )
        number, team = whole_number(seed, 0, "$.seed"), FIELD if problem.is_field else FUNCTION
        given = {"belief": belief, "acquisition": acquisition, "coordination": coordination, "transport": transport}
        parts: dict[str, Any] = {
            slot: part(slot, DEFAULT_KINDS[team][slot] if given[slot] is UNSET else given[slot], team) for slot in SLOTS
        }
        check_of_account(parts["acquisition"], team)
        check_named(parts["transport"], problem)
        if not problem.is_field:
            check_belief_fits(parts["belief"], parts["acquisition"])
            if isinstance(parts["belief"], AdditiveGPSettings):
                check_structure(parts["belief"], parts["acquisition"], problem.outcomes)
        return cls(problem, **parts, seed=number, horizon=horizon, initial=first)

    def to_plain(self) -> dict[str, Any]:
        """All but the problem as plain data, as JSON brings it back; of a user's own parts only their names."""
        plain = {slot: to_plain(getattr(self, slot)) for slot in SLOTS} | {"seed": self.seed, "rounds": self.horizon}
        if not self.problem.is_field:
            plain["initial"] = self.initial
        return msgspec.json.decode(msgspec.json.encode(plain))

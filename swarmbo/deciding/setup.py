"""Setup of a team: a problem, parts of known kinds or of a user's own, and a seed."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike

from swarmbo import registry
from swarmbo.acquisition import EGPEI, EGPTS, Acquisition, Auto, ChainAcquisition, Decision, Thompson
from swarmbo.acquisition.auto import DRAWABLE, is_shared
from swarmbo.acquisition.confidence_bounds import check_groups, check_structure
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.boundary.values import short, whole_number
from swarmbo.coordination import Solution
from swarmbo.coordination.agreement import Agreement
from swarmbo.deciding.near import Near
from swarmbo.errors import ConfigError
from swarmbo.graph import BoxFunctions, FactorGraph, Links
from swarmbo.kernels import load_kernels, spectral_frequencies, unloaded_kernels
from swarmbo.problem import Problem
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, SLOTS, TEAMS, Slot, TeamKind, is_kind, name_of, settings_of
from swarmbo.settings import Settings, name_hint
from swarmbo.spaces import Domain
from swarmbo.transport import Carrying, Faults

DEFAULT_KINDS: Mapping[TeamKind, dict[Slot, str]] = {
    FIELD: {"belief": "exact", "acquisition": "auto", "coordination": "exact", "transport": "in-process"},
    FUNCTION: {"belief": "additive", "acquisition": "auto", "coordination": "admm", "transport": "in-process"},
}

_INITIAL = 10  # points of an initial design
_INITIAL_NEAR = 4  # the same with a present setting, which is the first point
_MOST_ROUNDS = 10**9

_NUMBERS, _NEAR = ("seed", "rounds", "initial"), ("start", "step_limit", "safe")
_OF_GRAPH = ("bounds", "outcomes", "variable_owners")
_OF_PROBLEM = (*_OF_GRAPH, "no_go", "constraints", "limits")
_ARGUMENTS = (*_OF_PROBLEM, *SLOTS, *_NUMBERS, *_NEAR)
_MAXIMISES = "none: teams maximise; to minimise, tell the negative of each outcome"
_REGIONS = "constraints=[…] and no_go=[…] for forbidden points, and None as the outcome of a failed evaluation"
_INSTEAD = {
    **dict.fromkeys(("maximize", "maximise", "minimize", "minimise", "direction", "directions", "mode"), _MAXIMISES),
    **dict.fromkeys(("constraint", "constraints_func"), _REGIONS),
    **dict.fromkeys(_OF_PROBLEM, "it in the agent's problem"),  # a team takes these, as it makes its problem
    **dict.fromkeys(_OF_GRAPH, "none, as the Problem, the field or the environment states it"),
    "limits": "a Team, as an agent does not learn limits",
    **dict.fromkeys(("aim", "level"), "the environment's task and level, or an acquisition with this aim"),
}

Given = Settings | str | Mapping[str, Any] | UnsetType  # a part's settings, the name of its kind, or a table


@runtime_checkable
class Maximiser(Protocol):
    """Coordination method for a joint point: ``ADMM(…)``, or any object with this method."""

    def maximise(self, functions: BoxFunctions, links: Links = None, seed: int = 0, /) -> Agreement:
        """Find a joint point with a large sum of the functions, and report the agreement.

        Args:
            functions: Local functions, to be maximised in sum on a box of the unit cube.
            links: Radio graph of the agents; None: every agent reaches every other.
            seed: Seed of the agents' random draws, from the team's seed and history.
        """
        ...


@runtime_checkable
class JointPolicy(Protocol):
    """Policy that chooses joint points from the history alone: ``Sobol()``, or any object with this method."""

    def decide_joint(
        self, situation: JointSituation, acquisition: Any, /
    ) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Choose the next joint point (n,), in the unit cube, and report how."""
        ...


@runtime_checkable
class Planner(Protocol):
    """Planner that sends agents to locations from the situation alone, such as ``Greedy()``."""

    def decide(self, situation: Situation, acquisition: Any, /) -> Decision:
        """Choose the next measurement of each agent with candidates, and report how."""
        ...


class OwnFieldBelief(Protocol):
    """A user's own belief of a team in a field."""

    def prior(self, domain: Domain, /) -> Any:
        """Belief before any data: an object like ``ExactGP``, which learning never changes."""
        ...

    def restored(self, domain: Domain, state: Mapping[str, Any], /) -> Any:
        """Belief restored from its ``state_dict``."""
        ...


class OwnJointBelief(Protocol):
    """A user's own model of the history of a team with a factor graph."""

    def learn(self, situation: JointSituation, acquisition: Any, previous: Learned | None, /) -> Model:
        """Make a model of the sum, with the learned part for the next model, as a pure function of the arguments."""
        ...


FieldBelief = ExactGPSettings | FusedSettings | OwnFieldBelief
GivenBelief = Given | OwnFieldBelief | OwnJointBelief
JointBelief = AdditiveGPSettings | EnsembleSettings | OwnJointBelief


@runtime_checkable
class Solver(Protocol):
    """Coordination method for shortlists: ``MaxSum(…)``, ``Exact(…)``, or any object with this method."""

    def solve(self, graph: FactorGraph, tables: Mapping[str, ArrayLike], links: Links = None, /) -> Solution:
        """Find a joint choice with a large sum of the tables, and report the agreement."""
        ...


GivenCoordination = Given | Maximiser | JointPolicy | Solver | Planner


@dataclass(frozen=True)
class Role:
    """Requirements on a user's own class that is used as a part.

    It must derive from ``base`` and define at least ``enough`` of the ``methods``, with these arguments. Methods of the
    base and of ``abstract`` classes do not count.
    """

    form: str  # in words, with {} for each method
    methods: tuple[Callable[..., Any], ...]
    base: type = object
    enough: int = 1
    abstract: tuple[type, ...] = ()

    @property
    def arguments(self) -> dict[str, list[str]]:
        """Names of the methods, and of their arguments."""
        return {method.__name__: [*inspect.signature(method).parameters][1:] for method in self.methods}

    @property
    def in_words(self) -> str:
        """The requirements in words."""
        return self.form.format(*(f"{name}({', '.join(given)})" for name, given in self.arguments.items()))

    def require(self, own: type, name: str, at: str) -> None:
        """Refuse a class that does not meet the requirements."""
        there = {method: getattr(own, method) for method in self.arguments if callable(getattr(own, method, None))}
        for base in (self.base, *self.abstract):
            there = {method: taken for method, taken in there.items() if taken is not getattr(base, method, None)}
        if not issubclass(own, self.base) or len(there) < self.enough:
            raise ConfigError(f"got {name}; wanted {self.in_words}", at=at)
        for method, taken in there.items():
            wanted = self.arguments[method]
            if not registry.accepts(taken, "self", *wanted):
                got = f"{name}.{method}{inspect.signature(taken)}"
                raise ConfigError(f"got {got}; wanted {method}(self, {', '.join(wanted)})", at=at)


ROLES: Mapping[tuple[Slot, TeamKind], Role] = {
    ("acquisition", FIELD): Role(
        "your subclass of swarmbo.ChainAcquisition with {}, or of swarmbo.Acquisition with {}",
        (ChainAcquisition.utility, Acquisition.local_problem),
        base=Acquisition,
        abstract=(ChainAcquisition,),
    ),
    ("acquisition", FUNCTION): Role(
        "your subclass of swarmbo.Acquisition, with {}", (Acquisition.local_functions,), base=Acquisition
    ),
    ("coordination", FIELD): Role("an object with {} or {}", (Solver.solve, Planner.decide)),
    ("coordination", FUNCTION): Role("an object with {} or {}", (Maximiser.maximise, JointPolicy.decide_joint)),
    ("belief", FIELD): Role("an object with {} and {}", (OwnFieldBelief.prior, OwnFieldBelief.restored), enough=2),
    ("belief", FUNCTION): Role("an object with {}", (OwnJointBelief.learn,)),
}


def part(slot: Slot, given: object, team: TeamKind) -> Any:
    """Make a part of a team from a user's argument: a Settings instance, a kind's name, a table, or an object of the
    user's own class. With ``"module:Class"`` as name or kind, the class is loaded, and made from the rest of a table.
    """
    at, role = f"$.{slot}", ROLES.get((slot, team))
    table: Mapping[str, Any] = given if isinstance(given, Mapping) else {"kind": given}
    if role is not None and registry.is_user_code(name := table.get("kind")):
        own = registry.load_class(name, f"{at}.kind")
        role.require(own, name, f"{at}.kind")
        return registry.make(own, name, {key: value for key, value in table.items() if key != "kind"}, at)
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
    """Refuse an acquisition that cannot read the belief."""
    if isinstance(belief, EnsembleSettings):
        if type(acquisition).learn is not Acquisition.learn:
            readers = "'egp-ts', 'egp-ei', 'thompson', 'expected-improvement', 'dec-hbo' or 'dumbo'"
            got = f"got {name_of(acquisition)!r}, which fits its own models, with belief = 'ensemble'"
            raise ConfigError(f"{got}; wanted one that reads the belief: {readers}", at="$.acquisition.kind")
    elif isinstance(belief, AdditiveGPSettings) and isinstance(acquisition, EGPTS | EGPEI):
        got = f"got {name_of(belief)!r} with acquisition {name_of(acquisition)!r}"
        raise ConfigError(f"{got}; wanted 'ensemble'", at="$.belief.kind")


def check_draws(belief: JointBelief, acquisition: Acquisition, coordination: object, problem: Problem) -> None:
    """Refuse a kernel without spectral frequencies if its prior functions or random features will be drawn."""
    kernels = list[str | None](belief.kernels) if isinstance(belief, EnsembleSettings) else []
    if isinstance(belief, AdditiveGPSettings) and isinstance(coordination, Maximiser):  # others use no acquisition
        is_drawn = len(problem.graph.factors) > 1 or belief.structure is not None
        if problem.outcomes == "per-factor":
            is_drawn = is_shared(problem.graph) and len(problem.graph.factors) <= DRAWABLE
        if isinstance(acquisition, Thompson) or (isinstance(acquisition, Auto) and is_drawn and belief.time is None):
            kernels = [belief.kernel, *(own.kernel for own in (*belief.factors.values(), belief.time) if own)]
    for kernel in filter(None, kernels):
        spectral_frequencies(np.random.default_rng(0), kernel, np.ones(1), 1)


def check_ignored_settings(acquisition: Acquisition, team: TeamKind) -> None:
    """Refuse settings of an acquisition that have no effect for this kind of team."""
    ignored, usual = acquisition.for_fields if team == FUNCTION else acquisition.for_functions, type(acquisition)()
    for field in ignored:
        if (got := getattr(acquisition, field)) != getattr(usual, field):
            why = f"which has no effect for {TEAMS[team]}; leave it out"
            raise ConfigError(f"got {short(got)}, {why}", at=f"$.acquisition.{field}")


def refuse_unknown(
    arguments: Mapping[str, object], known: Sequence[str] = _ARGUMENTS, *, without: Collection[str] = ()
) -> None:
    """Refuse arguments other than the known ones, by default those of a team, ``without`` some."""
    known = [name for name in known if name not in without]
    for name in [name for name in arguments if name not in known]:
        given, wanted = arguments[name], f"some of {', '.join(known)}{name_hint(name, known)}"
        raise ConfigError(f"unknown argument, got {short(given)}; wanted {_INSTEAD.get(name, wanted)}", at=f"$.{name}")


def to_plain(part: object) -> Any:
    """A part's settings as plain data; the kind of a user's own object is its class."""
    plain: dict[str, Any] = msgspec.to_builtins(part) if isinstance(part, msgspec.Struct) else {}
    return plain if is_kind(part) else {**plain, "kind": registry.import_name(part)}


def settings_again(settings: Mapping[str, Any], given: Mapping[str, object], trust: bool = False) -> dict[str, Any]:
    """Settings of a saved state, in which parts that are given again replace saved ones. A state may come from
    anywhere, so code that it names is loaded only with ``trust``, and if its settings are known.
    """
    restored = {**settings, **{slot: own for slot, own in given.items() if own is not None}}
    restored["seed"] = whole_number(restored.get("seed", 0), 0, "$.seed")
    if not trust and given.get("belief") is None and (unloaded := unloaded_kernels(settings.get("belief"))):
        got = f"got the kernel {unloaded[0]!r}, your own code"
        raise ConfigError(f"{got}; pass the belief again, belief=…, or trust=True to load it", at="$.belief")
    for slot in SLOTS:
        table = settings.get(slot)
        name = table.get("kind") if isinstance(table, Mapping) else table
        if given.get(slot) is not None or not registry.is_user_code(name):
            continue
        if not trust:
            fix = f"pass it again, {slot}=…, or trust=True to load it, if the state has its settings"
            raise ConfigError(f"got {name!r}, your own code; {fix}", at=f"$.{slot}")
        user_class = registry.load_class(name, f"$.{slot}.kind")
        if not issubclass(user_class, msgspec.Struct) and registry.parameters_of(user_class) != {}:
            # its defaults might differ from the saved settings
            got = f"got {name!r}, whose settings the state lacks, as it is not a swarmbo.settings.Settings"
            raise ConfigError(f"{got}; pass it again: {slot}=…", at=f"$.{slot}")
    return restored


@dataclass(frozen=True, eq=False)
class Setup:
    """Fixed setup of a team; see ``Team`` for its parts."""

    problem: Problem
    belief: Any
    acquisition: Any
    coordination: Any
    transport: Carrying
    seed: int
    horizon: int | None
    initial: int
    near: Near | None = None

    @property
    def chooses(self) -> bool:
        """True if the acquisition chooses another kind by the field's task."""
        return self.rule() is not self.acquisition

    def rule(self, *, priced: bool = False) -> Any:
        """Acquisition, or the kind that it chooses for a field; ``priced``: further agents may abstain now."""
        if not self.problem.is_field:
            return self.acquisition
        return self.acquisition.in_field(self.problem.aim, priced=priced or self.problem.priced)

    @classmethod
    def of(cls, problem: Problem, **given: object) -> "Setup":
        """Make a setup from a user's arguments (see ``Team``); missing parts are defaults of a field or function."""
        refuse_unknown(given, (*SLOTS, *_NUMBERS, *_NEAR))
        rounds, initial, rules = given.get("rounds"), given.get("initial"), Near.of(problem, *map(given.get, _NEAR))
        horizon = None if rounds is None else whole_number(rounds, 1, "$.rounds", _MOST_ROUNDS)
        if problem.is_field and initial is not None:
            raise ConfigError("a team in a field has no initial design; leave it out", at="$.initial")
        usual: object = _INITIAL if rules is None else 1 if rules.safe is not None else _INITIAL_NEAR
        usual = usual if initial is None else initial
        first = 0 if problem.is_field else whole_number(usual, 1, "$.initial", _MOST_ROUNDS)
        if rules is not None and rules.safe is not None and first > 1:
            raise ConfigError(f"got {first} with safe; wanted 1, as no design is safe", at="$.initial")
        number, team = whole_number(given.get("seed", 0), 0, "$.seed"), FIELD if problem.is_field else FUNCTION
        own: dict[Slot, object] = {**DEFAULT_KINDS[team]}
        own.update({slot: given[slot] for slot in SLOTS if given.get(slot, UNSET) is not UNSET})
        parts: dict[str, Any] = {slot: part(slot, stated, team) for slot, stated in own.items()}
        check_ignored_settings(parts["acquisition"], team)
        faults, agents = parts["transport"], problem.agents
        if isinstance(faults, Faults) and (strangers := sorted(faults.named - set(agents))):
            wanted = f"some of {short(list(agents))}"
            raise ConfigError(f"got faults of {short(strangers)}; wanted {wanted}", at="$.transport")
        if not problem.is_field:
            check_belief_fits(parts["belief"], parts["acquisition"])
            check_draws(parts["belief"], parts["acquisition"], parts["coordination"], problem)
            is_learned = False
            if isinstance(parts["belief"], AdditiveGPSettings):
                is_learned = parts["belief"].structure is not None
                parts["belief"].check_factors(problem.graph, "$.belief.factors")
                check_structure(parts["belief"], parts["acquisition"], problem.outcomes)
            check_groups(parts["acquisition"], problem.graph, problem.outcomes, is_learned=is_learned)
        return cls(problem, **parts, seed=number, horizon=horizon, initial=first, near=rules)

    def to_plain(self) -> dict[str, Any]:
        """All but the problem as plain JSON data; a user's own part by class, with settings if it is ``Settings``."""
        plain = {slot: to_plain(getattr(self, slot)) for slot in SLOTS} | {"seed": self.seed, "rounds": self.horizon}
        if not self.problem.is_field:
            plain["initial"] = self.initial
            plain |= {} if self.near is None else self.near.to_plain()
        return msgspec.json.decode(msgspec.json.encode(plain))

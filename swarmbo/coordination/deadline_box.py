"""ADMM by a deadline: whoever is silent, and whatever is lost, every agent acts in time, by its own variables' values.

At first factors climb from several starts at once and are pulled together, each as soon as it hears something new. For
most of the time then variables take turns (``lanes``): from the best start and from where some runs have ended, they
go to better values one after the other, a step away or anywhere in the box, until all agree on which of these joint
points is worth most; from there turns go on. At the deadline each agent acts by where its variables stand.

Every variable stands at the best start, which all know, until something better is known, so silence does no harm.

Source:
    The rounds are those of consensus ADMM (``methods.admm``) with a penalty for each factor, so that no sum over all of
    them is needed, and with the newest that was heard of each (asynchronous ADMM is of Zhang & Kwok 2014).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.ascent import ascend, augmented
from swarmbo.coordination.box_steps import FEWEST, drawn_starts, natural_penalty
from swarmbo.coordination.conflicts import Conflicts
from swarmbo.coordination.deadline import Correspondent, Timed, links_of, ticked
from swarmbo.coordination.joint_starts import RETRY, JointStarts, Schedule
from swarmbo.coordination.local_functions import LocalFunctions, by_factor, exchange
from swarmbo.coordination.messages import Message, Offer, Published, Pull, Runs, Utility, Valued
from swarmbo.coordination.tables import Vector, total, violated
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.records import SolveReport
from swarmbo.transport import Envelope, Transport

_RUNS_END, _COMPARED, _DECIDED = 0.1, 0.65, 0.85  # of the time: when turns begin, pause, and go on in the best lane
_RUNS = 5  # at most
_STEPS = np.array([-1.0, 1.0])  # of how far a variable looks
_LATTICE = 9  # values all over the box
_REACH = 0.1  # of the box's side: how far a variable looks at first


@runtime_checkable
class TimedClimbs(Timed, Protocol):
    """Settings of an agreement by a deadline on a joint point: ``ADMM(…)`` has them; see there."""

    @property
    def starts(self) -> int: ...  # noqa: D102

    @property
    def inner_steps(self) -> int: ...  # noqa: D102

    @property
    def penalty(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class BoxTerms:
    """Terms of an agreement by a deadline on a joint point, which every agent knows beforehand.

    Args:
        settings: How.
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box.
        high: Upper corner (n,).
        starts: Of the runs (m, n), given ones first.
        n_given: How many of them were given.
        drawn: Random joint points (k, n), by which factors judge their spread.
        n_exchanges: Phases in which neighbouring factors tell each other numbers.
        shares: Whether agents know enough to say what others' factors are worth: then those of a silent agent are
            judged by whoever owns their variables.
    """

    settings: TimedClimbs
    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "m n"]
    n_given: int
    drawn: Float[np.ndarray, "k n"]
    n_exchanges: int = 0
    shares: bool = False

    @classmethod
    def of(cls, settings: TimedClimbs, functions: LocalFunctions, seed: int, *, shares: bool) -> "BoxTerms":
        """The terms that follow from the settings, the box and the seed; no function is asked for a value."""
        graph, n_given = functions.graph, min(len(functions.starts), settings.starts)
        n_random = max(settings.starts, FEWEST)
        points = drawn_starts(functions, graph.variables, seed, settings.starts, n_random)
        starts, drawn = points[: min(settings.starts, _RUNS)], points[n_given:]
        box = functions.low, functions.high
        return cls(settings, graph, *box, starts, n_given, drawn, functions.n_exchanges, shares)

    @property
    def standing(self) -> Float[np.ndarray, " n"]:
        """The joint point at first: the best start, or the middle of the box."""
        return self.starts[0] if self.n_given else (self.low + self.high) / 2.0

    @cached_property
    def sides(self) -> Float[np.ndarray, " n"]:
        """Of the box; 1 where it has no length."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @cached_property
    def conflicts(self) -> Conflicts:
        """The colours of variables: no two of one factor have the same."""
        return Conflicts(self.graph, {})

    @cached_property
    def schedule(self) -> Schedule:
        """Lanes: the best start, and where each run has ended."""
        ticks = self.settings.deadline
        first, compared, decided = (int(share * ticks) for share in (_RUNS_END, _COMPARED, _DECIDED))
        return Schedule(self.conflicts, 1 + len(self.starts), first, compared, decided, self.settings.threshold)

    def looks(
        self, variable: str, stand: Float[np.ndarray, " k"], reach: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k v"]:
        """The values that a variable looks at: where it stands, a step away, and all over the box."""
        i = self.graph.column_of[variable]
        low, high = self.low[i], self.high[i]
        steps = (reach * self.sides[i])[:, None] * _STEPS
        lattice = np.broadcast_to(np.linspace(low, high, _LATTICE), (len(stand), _LATTICE))
        return np.clip(np.concatenate([stand[:, None], stand[:, None] + steps, lattice], axis=1), low, high)


@dataclass(eq=False)
class _Climber:
    """One own factor in the rounds of consensus: copies x and scaled duals u (1, m, a), and steps (1, m) to go on."""

    stack: FactorStack
    X: Float[np.ndarray, "1 m a"]
    U: Float[np.ndarray, "1 m a"]
    eta: float
    step: Float[np.ndarray, "1 m"]
    has_begun: bool = False


class OwnRuns:
    """The own factors and variables in m runs side by side.

    Args:
        name: Of the agent.
        terms: What all know.
        functions: Of at least its factors.

    Attributes:
        Z: Where variables stand in each run (m, n), as far as was heard.
    """

    def __init__(self, name: str, terms: BoxTerms, functions: LocalFunctions) -> None:
        graph = terms.graph
        self.Z = terms.starts.copy()
        self._name, self._terms, self._graph, self._functions = name, terms, graph, functions
        self._variables, self._column = graph.variables_owned_by(name), graph.column_of
        self._fresh = set(graph.variables)  # where something is new to the own factors
        self._pulls: dict[tuple[str, str], Pull] = {}
        self._climbers = {f: self._climber(stacks_of(graph, [f])[0]) for f in graph.factors_owned_by(name)}

    def place(self, variable: str, entries: Vector) -> None:
        """Note where a variable stands in each run."""
        i = self._column[variable]
        self.Z[:, i] = np.clip(entries, self._terms.low[i], self._terms.high[i])
        self._fresh.add(variable)

    def pulled(self, pull: Pull) -> None:
        """Note where a factor wants an own variable."""
        self._pulls[pull.factor, pull.variable] = pull

    def climb(self, received: Mapping[str, Sequence[Float[np.ndarray, "1 p"]]]) -> list[Pull]:
        """Let every own factor of whose variables something is new climb its augmented Lagrangian.

        Args:
            received: What each of them received in each phase of exchange, at the runs first.

        Returns:
            Where they want their variables.
        """
        terms, functions, graph, out = self._terms, self._functions, self._graph, list[Pull]()
        for f, climber in self._climbers.items():
            scope, stack = graph.scope(f), climber.stack
            fresh = np.array([x in self._fresh for x in scope])
            if not fresh.any():
                continue
            z, columns = stack.take(self.Z), stack.columns[0]
            if climber.has_begun:
                # u <- u + x - z (Boyd et al. 2011, 3.1.1), once for each mean z that is heard: nobody waits, so a mean
                # may stand for several ticks, and would be charged to the dual in each
                climber.U = np.where(fresh, climber.U + climber.X - z, climber.U)
            climber.has_begun = True
            is_shared = np.array([len(graph.factors_of(x)) > 1 for x in scope])
            # nobody else wants a say in a variable of one factor, so nothing pulls at it
            weight = np.where(is_shared, climber.eta / terms.sides[columns] ** 2, 0.0)
            got = tuple(phase[:, : len(self.Z)] for phase in received[f])
            lagrangian = augmented(partial(functions.value_and_gradient, stack), got, z - climber.U, weight)
            box = terms.low[columns][None, None], terms.high[columns][None, None]
            climbed = ascend(lagrangian, climber.X, *box, terms.settings.inner_steps, first_step=climber.step)
            climber.X, climber.step = climbed.X, climbed.step
            said = (climber.X + climber.U)[0]
            out += [Pull(f, x, said[:, axis].copy(), climber.eta) for axis, x in enumerate(scope)]
        self._fresh.clear()
        for pull in out:
            if pull.variable in self._variables:
                self.pulled(pull)
        return out

    def agree(self) -> list[Runs]:
        """Let every own variable stand, in each run, at the mean of where its factors want it.

        Returns:
            Where they stand, of those that have moved by more than the threshold: for less nobody climbs again.
        """
        out: list[Runs] = []
        for x in self._variables:
            heard = [self._pulls[f, x] for f in self._graph.factors_of(x) if (f, x) in self._pulls]
            if not heard:
                continue
            # penalties differ from factor to factor, so z is the mean of x + u by them: what the sum of penalties is
            # least at
            weights = np.array([pull.weight for pull in heard])
            i = self._column[x]
            mean = weights @ np.array([pull.entries for pull in heard]) / weights.sum()
            runs = Runs(x, np.clip(mean, self._terms.low[i], self._terms.high[i]))
            if self.change(runs, self.Z[:, i]) > self._terms.settings.threshold:
                self.place(x, runs.entries)
                out.append(runs)
        return out

    def change(self, message: Pull | Runs, before: Vector) -> float:
        """Largest move over all runs, in sides of the box."""
        return float(np.abs(message.entries - before).max() / self._terms.sides[self._column[message.variable]])

    def _climber(self, stack: FactorStack) -> _Climber:
        terms = self._terms
        silence = tuple(np.zeros((1, len(terms.drawn))) for _ in range(terms.n_exchanges))
        values = self._functions.value(stack, stack.take(terms.drawn), silence)[0]
        eta, X = terms.settings.penalty * natural_penalty(values, 0), stack.take(self.Z)
        return _Climber(stack, X, np.zeros_like(X), eta, np.full(X.shape[:2], 1.0 / eta))


class DeadlineAgentInBox(Correspondent):
    """One agent of an agreement by a deadline on a joint point.

    Everything it uses is what it alone has, the terms that all share, and what has arrived.

    Args:
        name: Its name, as in the graph.
        terms: What all know.
        functions: Of at least the factors that it owns; it looks at others only where agents share what they know.
        decision: Number of the decision, 0 to 2^32 - 1.
    """

    def __init__(self, name: str, terms: BoxTerms, functions: LocalFunctions, decision: int = 0) -> None:
        graph = terms.graph
        super().__init__(name, decision, _correspondents(graph, name), terms.settings.patience, RETRY)
        functions = functions.of(graph.factors if terms.shares else graph.factors_owned_by(name))
        self._terms, self._graph, self._functions = terms, graph, functions
        self._factors, self._variables = graph.factors_owned_by(name), graph.variables_owned_by(name)
        self._column = graph.column_of
        self._numbers: dict[tuple[str, str, int], Vector] = {}  # by teller, hearer and phase
        self._stacks = {f: stacks_of(graph, [f])[0] for f in self._factors}
        self._runs = OwnRuns(name, terms, functions)
        standing = np.clip(terms.standing, terms.low, terms.high)
        judged = terms.looks, self._values, dict(zip(graph.variables, standing.tolist(), strict=True))
        self._joint_starts = JointStarts(self, terms.schedule, standing, terms.sides, *judged, shares=terms.shares)

    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, climb or take turns, and tell others what changed.

        Args:
            now: Ticks since the decision began; after the deadline nothing is said.
            inbox: What has arrived since the last tick.

        Returns:
            Messages to others.
        """
        self._hear_all(now, inbox)
        # at every tick, whatever else is done: numbers of neighbours belong to the points where these stand now
        for phase in range(self._terms.n_exchanges):
            self._publish(phase)
        if now < self._terms.schedule.first:
            self._run()
        else:
            if not self._joint_starts.has_begun:
                self._begin()
            self._joint_starts.go_on(now, self._turn)
        return self._posted() if now < self._terms.settings.deadline else []

    def word(self) -> dict[str, float]:
        """The values of its variables, within the box whatever happened."""
        low, high = self._terms.low, self._terms.high
        at = {x: self._column[x] for x in self._variables}
        return {x: float(np.clip(self._joint_starts.stand[0, i], low[i], high[i])) for x, i in at.items()}

    # What arrives

    def take(self, sender: str, message: Message) -> bool:
        """Put an entry in its place, if it is one that the sender may state."""
        graph, entries = self._graph, getattr(message, "entries", None)
        if not isinstance(entries, np.ndarray) or entries.ndim != 1 or np.isnan(entries).any():
            return False
        match message:
            case Pull(factor=f, variable=x, weight=weight):
                is_right = x in self._variables and f in graph.factors_of(x) and graph.owner(f) == sender
                if not (is_right and self._is_of_runs(entries) and 0.0 < weight < np.inf):
                    return False
                self._runs.pulled(message)
            case Runs(variable=x):
                if not (self._is_seen(x, sender) and self._is_of_runs(entries)):
                    return False
                self._runs.place(x, entries)
            case Offer() | Utility() | Valued():
                return self._joint_starts.take(sender, message)
            case Published(factor=f, neighbour=g, phase=phase):
                is_right = g in self._stacks and f in graph.neighbours(g) and graph.owner(f) == sender
                is_right = is_right and 0 <= phase < self._terms.n_exchanges
                if not (is_right and len(entries) == self._n_points and np.isfinite(entries).all()):
                    return False
                self._numbers[f, g, phase] = entries
            case _:
                return False
        return True

    def _is_of_runs(self, entries: Vector) -> bool:
        return len(entries) == len(self._terms.starts) and bool(np.isfinite(entries).all())

    def _is_seen(self, x: str, sender: str) -> bool:
        return x in self._column and self._graph.variable_owner(x) == sender

    # What leaves

    def _put(self, recipient: str, message: Pull | Published | Runs, changed_by: float = np.inf) -> None:
        """Have something told, if what was told before differs by more than the threshold."""
        if self.told(recipient, message.key) is None or changed_by > self._terms.settings.threshold:
            self.put(recipient, message, self._turn)

    def _told(self, recipient: str, message: Pull | Published) -> Vector | None:
        """The entries that were told last in the place of a message."""
        before = self.told(recipient, message.key)
        return before.entries if isinstance(before, Pull | Published) else None

    def _owners_of_factors(self, x: str) -> tuple[str, ...]:
        graph = self._graph
        return tuple(dict.fromkeys(o for f in graph.factors_of(x) if (o := graph.owner(f)) != self.name))

    # Numbers that neighbouring factors need of each other

    def _points(self, f: str) -> Float[np.ndarray, "1 p a"]:
        """A factor's points in runs, as far as was heard, and then in lanes."""
        return self._stacks[f].take(np.concatenate([self._runs.Z, self._joint_starts.taken]))

    @property
    def _n_points(self) -> int:
        return len(self._terms.starts) + self._terms.schedule.n_joint_starts

    def _received(self, f: str, phases: int) -> tuple[Float[np.ndarray, "1 p"], ...]:
        """Sums of what neighbours published there; what was not heard counts as 0."""
        out: list[np.ndarray] = []
        for phase in range(phases):
            summed = np.zeros(self._n_points)
            for g in self._graph.neighbours(f):
                summed += self._numbers.get((g, f, phase), 0.0)
            out.append(summed[None])
        return tuple(out)

    def _publish(self, phase: int) -> None:
        for f, stack in self._stacks.items():
            told = self._functions.published(stack, self._points(f), self._received(f, phase))[0]
            for g in self._graph.neighbours(f):
                owner, message = self._graph.owner(g), Published(f, g, told, phase)
                if owner == self.name:
                    self._numbers[f, g, phase] = told
                    continue
                before = self._told(owner, message)
                largest = max(float(np.abs(told).max()), 1e-300)
                self._put(owner, message, np.inf if before is None else float(np.abs(told - before).max()) / largest)

    # Runs

    def _run(self) -> None:
        """Let own factors climb, and own variables stand where these want them."""
        received = {f: self._received(f, self._terms.n_exchanges) for f in self._factors}
        for pull in self._runs.climb(received):
            owner = self._graph.variable_owner(pull.variable)
            if owner != self.name:
                before = self._told(owner, pull)
                self._put(owner, pull, np.inf if before is None else self._runs.change(pull, before))
        for runs in self._runs.agree():
            for owner in self._owners_of_factors(runs.variable):
                self._put(owner, runs)

    # Lanes

    def _begin(self) -> None:
        """Let lanes start where all stand at first, and where runs have ended."""
        ends = np.concatenate([self._terms.standing[None], self._runs.Z])
        self._joint_starts.begin({x: ends[:, self._column[x]] for x in self._variables}, _REACH)

    def _values(self, f: str, U: Float[np.ndarray, "p n"], joint_starts: Int[np.ndarray, " p"]) -> Vector:
        """A factor's values at joint points, put into the box; -inf where it has none."""
        stack = self._stacks.get(f) or stacks_of(self._graph, [f])[0]
        U = np.clip(U, self._terms.low, self._terms.high)
        if f not in self._stacks or not self._terms.n_exchanges:
            at = tuple(np.zeros((1, len(U))) for _ in range(self._terms.n_exchanges))
            line = self._functions.value(stack, stack.take(U), at)[0]
        else:  # where neighbours matter, what a factor climbs counts what moving it does to their terms
            received = self._received(f, self._terms.n_exchanges)
            at = tuple(phase[:, len(self._terms.starts) + joint_starts] for phase in received)
            line = self._functions.value_and_gradient(stack, stack.take(U), at)[0][0]
        return np.where(line < np.inf, line, -np.inf)


def _correspondents(graph: FactorGraph, name: str) -> tuple[str, ...]:
    """Owners of its factors' variables and neighbours, of its variables' factors, and of the variables of these."""
    own, of_own = graph.factors_owned_by(name), [f for x in graph.variables_owned_by(name) for f in graph.factors_of(x)]
    them = {graph.variable_owner(x) for f in (*own, *of_own) for x in graph.scope(f)}
    them |= {graph.owner(f) for f in of_own} | {graph.owner(g) for f in own for g in graph.neighbours(f)}
    return tuple(agent for agent in graph.agents if agent in them - {name})


def maximise_by_deadline(
    settings: TimedClimbs,
    functions: LocalFunctions,
    transport: Transport,
    seed: int = 0,
    decision: int = 0,
    *,
    shares: bool = False,
) -> Agreement:
    """Let one agent per owner agree on a joint point by real messages, until all act at the same tick.

    Variables of agents that are gone when the deadline comes stand where all know that they stood at first: at the best
    start, or in the middle of the box.

    Args:
        settings: How.
        functions: Each agent is given those of its own factors only, unless they share what they know.
        transport: Opened for at least the graph's agents.
        seed: Of what agents draw.
        decision: Its number, 0 to 2^32 - 1.
        shares: Whether every agent knows enough to say what others' factors are worth, as where outcomes are totals:
            then those of a silent agent are judged by whoever owns their variables.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> from swarmbo.transport import Faults
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> transport = Faults(loss=0.3, delay=2).open(graph.agents)
        >>> agreement = maximise_by_deadline(sb.ADMM(mode="asynchronous"), bowls, transport)
        >>> np.allclose(agreement.point, [0.3, 0.35, 0.4], atol=0.05), agreement.report.status
        (True, 'deadline')
    """
    graph, column = functions.graph, functions.graph.column_of
    terms = BoxTerms.of(settings, functions, seed, shares=shares)
    agents = {name: DeadlineAgentInBox(name, terms, functions, decision) for name in graph.agents}
    living = ticked(agents, settings.deadline, transport)
    point = np.clip(terms.standing, functions.low, functions.high)
    for name in living:
        for x, value in agents[name].word().items():
            point[column[x]] = value
    links = links_of(agents, living, settings.deadline, transport)
    stacks = stacks_of(graph)
    points = [stack.take(point[None]) for stack in stacks]
    rows = zip(stacks, points, exchange(functions, stacks, points), strict=True)
    values = by_factor(stacks, [functions.value(*row) for row in rows])
    by_name = {factor: float(values[factor][0]) for factor in graph.factors}
    value, broken = total(np.array(list(by_name.values()))), violated(by_name)
    status = "infeasible" if broken else "deadline"
    report = SolveReport(status, settings.deadline, value, traffic=transport.traffic, violated=broken, links=links)
    return Agreement(point, value, report)

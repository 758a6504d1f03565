"""ADMM by a deadline: every agent acts in time, whatever messages are lost and whatever agents are silent.

Factors first climb in parallel runs from several starts and are pulled together. For most of the time variables then
move in turns (``joint_starts``), from the best start and the runs' ends. At last agents agree on the best of these
points. Until a better value is known, a variable is at the best start, which all agents know: silence does no harm.

Source: rounds of consensus ADMM (``methods.admm``) with a penalty for each factor, so that no sum over all factors is
needed, and with the newest message of each sender (asynchronous ADMM: Zhang & Kwok 2014).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination import box_steps, messages
from swarmbo.coordination.agreement import Agreement, agreement_at
from swarmbo.coordination.deadline import DeadlineAgent, link_report, run_until_deadline
from swarmbo.coordination.flooding import largest_changes
from swarmbo.coordination.joint_starts import RETRY, JointStarts, Schedule
from swarmbo.coordination.messages import Message
from swarmbo.coordination.tables import Conflicts, Vector
from swarmbo.graph import BoxFunctions, FactorStack, stacks_of
from swarmbo.transport import Envelope, Transport

_RUNS_END, _COMPARED, _DECIDED = 0.1, 0.65, 0.85  # shares of the time: end of runs, pause, and decision
_RUNS = 5  # largest number of parallel runs
_STEPS = np.array([-1.0, 1.0])  # in units of a variable's reach
_LATTICE = 9  # values all over the box
_REACH = 0.1  # initial reach of a variable, in box widths


@dataclass(frozen=True, eq=False)
class BoxTerms:
    """Terms of an agreement on a joint point by a deadline. All agents know the graph, box and levels of ``functions``,
    but evaluate own factors only; if ``shares``, they can evaluate silent agents' factors too.
    """

    settings: Any
    functions: BoxFunctions
    starts: Float[np.ndarray, "m n"]
    n_given: int
    drawn: Float[np.ndarray, "k n"]
    shares: bool = False

    @classmethod
    def of(cls, settings: Any, functions: BoxFunctions, seed: int, *, shares: bool) -> "BoxTerms":
        """Make the terms from the settings, the box and the seed; no function is evaluated."""
        n_given, n_random = min(len(functions.starts), settings.starts), max(settings.starts, box_steps.FEWEST)
        points = box_steps.drawn_starts(functions, functions.graph.variables, seed, settings.starts, n_random)
        return cls(settings, functions, points[: min(settings.starts, _RUNS)], n_given, points[n_given:], shares)

    @property
    def initial_point(self) -> Float[np.ndarray, " n"]:
        """Initial joint point: the best start, or the middle of the box."""
        return self.starts[0] if self.n_given else (self.functions.low + self.functions.high) / 2.0

    @cached_property
    def schedule(self) -> Schedule:
        """Schedule of joint starts: the best start, and the end of each run."""
        ticks = self.settings.deadline
        first, compared, decided = (int(share * ticks) for share in (_RUNS_END, _COMPARED, _DECIDED))
        conflicts = Conflicts(self.functions.graph, {})  # for colours: no two variables of one factor have the same
        return Schedule(conflicts, 1 + len(self.starts), first, compared, decided, self.settings.threshold)

    def candidates(self, variable: str, values: Vector, reach: Vector) -> Float[np.ndarray, "k v"]:
        """Values that a variable evaluates: its present one, values a step away, and a lattice or its whole grid."""
        i = self.functions.graph.column_of[variable]
        low, high = self.functions.low[i], self.functions.high[i]
        steps = (reach * self.functions.sides[i])[:, None] * _STEPS
        levels = self.functions.levels.get(variable, np.linspace(low, high, _LATTICE))
        lattice = np.broadcast_to(levels, (len(values), len(levels)))
        return np.clip(np.concatenate([values[:, None], values[:, None] + steps, lattice], axis=1), low, high)


@dataclass(eq=False)
class _Climber:
    """One own factor in the rounds of consensus: copies x and scaled duals u (1, m, a), and step lengths (1, m)."""

    stack: FactorStack
    X: Float[np.ndarray, "1 m a"]
    U: Float[np.ndarray, "1 m a"]
    eta: float
    step: Float[np.ndarray, "1 m"]
    has_begun: bool = False


class OwnRuns:
    """One agent's factors and variables in m parallel runs; ``Z`` (m, n) holds the last received values."""

    def __init__(self, name: str, terms: BoxTerms, functions: BoxFunctions) -> None:
        graph = functions.graph
        self.Z = terms.starts.copy()
        self._terms, self._graph, self._functions = terms, graph, functions
        self._variables, self._column = graph.variables_owned_by(name), graph.column_of
        self._changed = set(graph.variables)  # variables that changed since own factors climbed
        self._pulls: dict[tuple[str, str], messages.Pull] = {}
        self._climbers = {f: self._climber(stacks_of(graph, [f])[0]) for f in graph.factors_owned_by(name)}

    def store_value(self, variable: str, entries: Vector) -> None:
        """Store a variable's value in each run."""
        i = self._column[variable]
        self.Z[:, i] = np.clip(entries, self._functions.low[i], self._functions.high[i])
        self._changed.add(variable)

    def store_pull(self, pull: messages.Pull) -> None:
        """Store the values of an own variable that a factor proposes."""
        self._pulls[pull.factor, pull.variable] = pull

    def climb(self, received: Mapping[str, Sequence[Float[np.ndarray, "1 p"]]]) -> list[messages.Pull]:
        """Let every own factor whose variables changed climb its augmented Lagrangian."""
        terms, functions, graph, pulls = self._terms, self._functions, self._graph, list[messages.Pull]()
        for f, climber in self._climbers.items():
            scope, stack = graph.scope(f), climber.stack
            has_changed = np.array([x in self._changed for x in scope])
            if not has_changed.any():
                continue
            z, columns = stack.take(self.Z), stack.columns[0]
            if climber.has_begun:
                # u <- u + x - z (Boyd et al. 2011, 3.1.1), once for each received mean z: agents do not wait, so a
                # mean may be the newest for several ticks, and must not change the dual in each of them
                climber.U = np.where(has_changed, climber.U + climber.X - z, climber.U)
            climber.has_begun = True
            is_shared = np.array([len(graph.factors_of(x)) > 1 for x in scope])
            # a variable of one factor has no other copy, so nothing pulls at it
            weight = np.where(is_shared, climber.eta / terms.functions.sides[columns] ** 2, 0.0)
            sums = tuple(phase[:, : len(self.Z)] for phase in received[f])
            function, penalty = box_steps.climbed_by(functions, stack, sums), box_steps.pulled_to(z - climber.U, weight)
            low, high = functions.low[columns][None, None], functions.high[columns][None, None]
            n_steps = terms.settings.inner_steps
            climbed = box_steps.ascend(function, climber.X, low, high, n_steps, climber.step, penalty)
            climber.X, climber.step = climbed.X, climbed.step
            wanted = (climber.X + climber.U)[0]
            pulls += [messages.Pull(f, x, wanted[:, axis].copy(), climber.eta) for axis, x in enumerate(scope)]
        self._changed.clear()
        for pull in pulls:
            if pull.variable in self._variables:
                self.store_pull(pull)
        return pulls

    def agree(self) -> list[messages.Runs]:
        """Move own variables to the means of their factors' values, if beyond the threshold; return these moves."""
        moves: list[messages.Runs] = []
        for x in self._variables:
            pulls = [self._pulls[f, x] for f in self._graph.factors_of(x) if (f, x) in self._pulls]
            if not pulls:
                continue
            # penalties differ from factor to factor, so z is the mean of x + u weighted by them, which minimises
            # the sum of penalties
            weights = np.array([pull.weight for pull in pulls])
            i = self._column[x]
            mean = weights @ np.array([pull.entries for pull in pulls]) / weights.sum()
            runs = messages.Runs(x, np.clip(mean, self._functions.low[i], self._functions.high[i]))
            if self.change(runs.variable, self.Z[:, i], runs.entries) > self._terms.settings.threshold:
                self.store_value(x, runs.entries)
                moves.append(runs)
        return moves

    def change(self, variable: str, before: Vector, now: Vector) -> float:
        """Largest move of a variable in any run, in box widths."""
        return float(np.abs(now - before).max() / self._terms.functions.sides[self._column[variable]])

    def _climber(self, stack: FactorStack) -> _Climber:
        terms = self._terms
        drawn = stack.take(terms.drawn)
        values = self._functions.value(stack, drawn, self._functions.unheard(drawn))[0]
        eta, X = terms.settings.penalty * box_steps.natural_penalty(values, 0), stack.take(self.Z)
        return _Climber(stack, X, np.zeros_like(X), eta, np.full(X.shape[:2], 1.0 / eta))


class DeadlineBoxAgent(DeadlineAgent):
    """One agent of an agreement by a deadline on a joint point, from its own data, the common terms, and arrivals."""

    def __init__(self, name: str, terms: BoxTerms, decision: int = 0) -> None:
        graph = terms.functions.graph
        around = [graph.owner(g) for f in graph.factors_owned_by(name) for g in graph.neighbours(f)]
        super().__init__(name, graph, terms.settings, decision, around, RETRY)
        functions = terms.functions.of(graph.factors if terms.shares else self._factors)
        self._terms, self._functions = terms, functions
        self._numbers: dict[tuple[str, str, int], Vector] = {}  # by sender, recipient and phase
        self._stacks = {f: stacks_of(graph, [f])[0] for f in self._factors}
        self._runs = OwnRuns(name, terms, functions)
        standing = np.clip(terms.initial_point, functions.low, functions.high)
        default = dict(zip(graph.variables, standing.tolist(), strict=True))
        judged = functions.sides, terms.candidates, self._values, default
        self._joint_starts = JointStarts(self, terms.schedule, standing, *judged, shares=terms.shares)

    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, climb or take turns, and send changes to others; see the base."""
        self._receive_all(now, inbox)
        # at every tick, as neighbours' numbers belong to the present points
        for phase in range(self._functions.n_exchanges):
            self._publish(phase)
        if now < self._terms.schedule.first:
            # own factors climb, and own variables move to the means of the factors' values
            received = {f: self._received(f, self._functions.n_exchanges) for f in self._factors}
            for pull in self._runs.climb(received):
                owner = self._graph.variable_owner(pull.variable)
                self.announce(owner, pull, partial(self._runs.change, pull.variable))
            for runs in self._runs.agree():
                for owner in dict.fromkeys(map(self._graph.owner, self._graph.factors_of(runs.variable))):
                    self.put(owner, runs, self._version)
        else:
            if not self._joint_starts.has_begun:
                self._begin_joint_starts()
            self._joint_starts.advance(now, self._version)
        return self._outgoing() if now < self._terms.settings.deadline else []

    def decided_values(self) -> dict[str, float]:
        """Values of its variables, always within the box."""
        low, high = self._functions.low, self._functions.high
        at = {x: self._column[x] for x in self._variables}
        return {x: float(np.clip(self._joint_starts.points[0, i], low[i], high[i])) for x, i in at.items()}

    def accept(self, sender: str, message: Message) -> bool:
        """Store an entry if it is admissible from this sender; return True if it was stored."""
        graph, entries = self._graph, getattr(message, "entries", None)
        if not isinstance(entries, np.ndarray) or entries.ndim != 1 or np.isnan(entries).any():
            return False
        is_finite = bool(np.isfinite(entries).all())
        is_of_runs = is_finite and len(entries) == len(self._terms.starts)
        match message:
            case messages.Pull(factor=f, variable=x, weight=w) if is_of_runs and self.is_to_variable(sender, f, x):
                if not 0.0 < w < np.inf:
                    return False
                self._runs.store_pull(message)
            case messages.Runs(variable=x) if is_of_runs and self.is_owner(sender, x):
                self._runs.store_value(x, entries)
            case messages.Offer() | messages.Utility() | messages.Valued():
                return self._joint_starts.accept(sender, message)
            case messages.Published(factor=f, neighbour=g, phase=phase):
                is_right = g in self._stacks and f in graph.neighbours(g) and graph.owner(f) == sender
                is_right = is_right and 0 <= phase < self._functions.n_exchanges
                if not (is_right and is_finite and len(entries) == self._n_points):
                    return False
                self._numbers[f, g, phase] = entries
            case _:
                return False
        return True

    @property
    def _n_points(self) -> int:
        return len(self._terms.starts) + self._terms.schedule.n_joint_starts

    def _received(self, f: str, phases: int) -> tuple[Float[np.ndarray, "1 p"], ...]:
        """Sums of the neighbours' published numbers; numbers not received count as 0."""
        near, none = self._graph.neighbours(f), np.zeros(self._n_points)
        numbers_by_phase = ([self._numbers.get((g, f, phase), none) for g in near] for phase in range(phases))
        return tuple(reduce(np.add, numbers, none)[None] for numbers in numbers_by_phase)

    def _publish(self, phase: int) -> None:
        Z = np.concatenate([self._runs.Z, self._joint_starts.assumed])  # as last received
        for f, stack in self._stacks.items():
            numbers = self._functions.published(stack, stack.take(Z), self._received(f, phase))[0]
            for g in self._graph.neighbours(f):
                owner, message = self._graph.owner(g), messages.Published(f, g, numbers, phase)
                if owner == self.name:
                    self._numbers[f, g, phase] = numbers
                    continue
                self.announce(owner, message, largest_changes, max(float(np.abs(numbers).max()), 1e-300))

    def _begin_joint_starts(self) -> None:
        """Begin joint starts at the initial point and at the ends of the runs."""
        ends = np.concatenate([self._terms.initial_point[None], self._runs.Z])
        self._joint_starts.begin({x: ends[:, self._column[x]] for x in self._variables}, _REACH)

    def _values(self, f: str, U: Float[np.ndarray, "p n"], joint_starts: Int[np.ndarray, " p"]) -> Vector:
        """A factor's values at joint points, clipped to the box; -inf where it has no value."""
        stack = self._stacks.get(f) or stacks_of(self._graph, [f])[0]
        U = np.clip(U, self._functions.low, self._functions.high)
        if f not in self._stacks or not self._functions.n_exchanges:
            at = self._functions.unheard(U[None])
            line = self._functions.value(stack, stack.take(U), at)[0]
        else:  # if neighbours matter, use the factor's model of its effect on their terms
            received = self._received(f, self._functions.n_exchanges)
            at = tuple(phase[:, len(self._terms.starts) + joint_starts] for phase in received)
            line = self._functions.value_and_gradient(stack, stack.take(U), at)[0][0]
        return np.where(line < np.inf, line, -np.inf)


def maximise_by_deadline(
    settings: Any,
    functions: BoxFunctions,
    transport: Transport,
    seed: int = 0,
    decision: int = 0,
    *,
    shares: bool = False,
) -> Agreement:
    """Let one agent per owner agree on a joint point until all act at the same tick; failed agents' variables keep the
    initial value. If ``shares``, agents can evaluate all factors, as when all know the total outcomes.
    """
    graph, column = functions.graph, functions.graph.column_of
    terms = BoxTerms.of(settings, functions, seed, shares=shares)
    agents = {name: DeadlineBoxAgent(name, terms, decision) for name in graph.agents}
    living = run_until_deadline(agents, settings.deadline, transport)
    point = np.clip(terms.initial_point, functions.low, functions.high)
    for name in living:
        for x, value in agents[name].decided_values().items():
            point[column[x]] = value
    links = link_report(agents, living, settings.deadline, transport)
    return agreement_at(functions, point, settings.deadline, transport.traffic, links, "deadline")

"""Parallel joint choices, each improved one variable at a time; at last all agents continue from the best choice.

A variable's owner sends its value and search reach. The owners of its factors return the factors' values at each
candidate value of the variable, all other variables at their present values. Variables move in turns, colour by colour,
to the largest sum. A move by outdated messages may be wrong; a later turn corrects it. Turns pause for a comparison:
one agent sends a factor's value, others forward it, so agents with the values of all factors have bit-identical sums.

Source: coordinate ascent, as in DSA of Zhang et al. 2005, from several starts; turns by colour are our own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.deadline import DeadlineAgent
from swarmbo.coordination.messages import Message, Offer, Utility, Valued
from swarmbo.coordination.tables import Conflicts, Vector

# ticks until an unacknowledged entry is sent again: entries are long, and late entries count in a later turn
RETRY = 2
_SLOT = 2  # ticks of a turn: without faults, a request and its answer take two
# factor by which the reach shrinks after a short move, and grows after a move of full length
_FINER = 3.0
_FINEST = 1e-3  # smallest reach, in box widths


@dataclass(frozen=True, eq=False)
class Schedule:
    """Schedule of joint starts, known to all: turns begin at tick ``first``, pause at ``compared``, and continue at
    ``decided`` from the best joint start. If ``is_fixed``, a variable's candidate values never change.
    """

    conflicts: Conflicts
    n_joint_starts: int
    first: int
    compared: int
    decided: int
    threshold: float
    is_fixed: bool = False

    def has_turn(self, variable: str, now: int) -> bool:
        """True if a variable may move at a tick; then no variable that shares a factor with it may move."""
        if now < self.first or self.compared <= now < self.decided:
            return False
        colour = (now - self.first) // _SLOT % self.conflicts.n_colours
        return colour == self.conflicts.colour[variable]


class JointStarts:
    """One agent's variables and factors in all joint starts.

    Until an agent decides, all k joint starts are in use, and arrays have k rows; then only the best one is in use. The
    other agents may decide earlier or later, so messages of both sizes arrive at any time; ``_in_use`` reads both.

    ``candidates`` returns a variable's candidate values, its present value among them; ``utility`` a factor's values,
    -inf if forbidden; ``default`` holds the values of silent agents' variables.
    """

    def __init__(
        self,
        host: DeadlineAgent,
        schedule: Schedule,
        start: Float[np.ndarray, " n"],
        sides: Float[np.ndarray, " n"],
        candidates: "Callable[[str, Vector, Vector], Float[np.ndarray, 'k v']]",
        utility: "Callable[[str, Float[np.ndarray, 'p n'], Int[np.ndarray, ' p']], Vector]",
        default: Mapping[str, float],
        *,
        shares: bool = False,
    ) -> None:
        self._host, self._schedule, self._candidates, self._utility = host, schedule, candidates, utility
        self._shares, self._default, self._silent = shares, default, frozenset[str]()
        graph = self._graph = schedule.conflicts.graph
        self.points, self._sides = np.repeat(start[None], schedule.n_joint_starts, axis=0), sides
        self._factors, self._variables = graph.factors_owned_by(host.name), graph.variables_owned_by(host.name)
        self._column = graph.column_of
        self._n_in_use = schedule.n_joint_starts  # 1 after the decision
        self._best = dict.fromkeys(graph.variables, 0)  # by variable, as each part of the graph decides independently
        self._offers: dict[str, Offer] = {}
        self._utilities: dict[tuple[str, str], Utility] = {}
        self._values: dict[str, Vector] = {}  # values of factors in each joint start, as received
        self._moved = set(graph.variables)  # variables that changed since own factors were evaluated

    def accept(self, sender: str, message: Message) -> bool:
        """Store an entry if it is admissible from this sender; return True if it was stored."""
        k = self._schedule.n_joint_starts
        match message:
            case Offer(variable=x, entries=entries):
                is_whole = self._host.is_owner(sender, x) and len(entries) in (2, 2 * k)
                is_right = is_whole and bool(np.isfinite(entries).all() and (entries.reshape(2, -1)[1] >= 0.0).all())
                if is_right:
                    self._set_offer(message)
            case Utility(factor=f, variable=x, entries=entries):
                is_known = self._host.is_to_variable(sender, f, x) and x in self._offers
                size = self._candidates(x, *self._offered(x)).shape[1] if is_known else 0
                is_right = is_known and entries.size in (size, k * size) and bool((entries < np.inf).all())  # nor NaN
                if is_right:
                    self._utilities[f, x] = message
            case Valued(factor=f, entries=entries):
                is_others = f in self._graph.factors and f not in self._factors
                is_right = is_others and len(entries) == k and bool((entries < np.inf).all())
                if is_right:
                    self._values[f] = entries
            case _:
                is_right = False
        return is_right

    def _set_offer(self, offer: Offer) -> None:
        self._offers[offer.variable] = offer
        self.points[:, self._column[offer.variable]] = self._offered(offer.variable)[0]
        self._moved.add(offer.variable)

    def _offered(self, x: str) -> Float[np.ndarray, "2 k"]:
        """A variable's values and reaches (2, k) by its last offer, in each joint start in use."""
        return self._in_use(x, self._offers[x].entries.reshape(2, -1).T).T

    def _in_use(self, x: str, rows: Float[np.ndarray, "_ c"]) -> Float[np.ndarray, "k c"]:
        """Rows of the joint starts in use, from a variable's rows of all joint starts or of the best only."""
        if len(rows) == self._n_in_use:
            return rows
        return rows[[self._best[x]]] if self._n_in_use == 1 else np.repeat(rows, self._n_in_use, axis=0)

    @property
    def has_begun(self) -> bool:
        """True once own variables have announced their values."""
        return all(x in self._offers for x in self._variables)

    def knows(self, variable: str) -> bool:
        """True if a variable's value is known: its owner sent it, or is silent and the variable has a default."""
        return variable in (self._default if variable in self._silent else self._offers)

    @property
    def assumed(self) -> Float[np.ndarray, "k n"]:
        """Joint points of all joint starts, with the variables of silent agents at their default."""
        out = self.points.copy() if self._silent else self.points
        for x in self._silent & self._default.keys():
            out[:, self._column[x]] = self._default[x]
        return out

    def begin(self, values: Mapping[str, Vector], reach: float) -> None:
        """Announce the initial values of own variables in each joint start, and their reach."""
        for x in self._variables:
            self._offer(x, values[x], np.full(self._n_in_use, reach))

    def advance(self, now: int, turn: int) -> None:
        """Move variables, compare joint starts or choose one of them, by the schedule, and announce the changes."""
        silent = frozenset(x for x in self._graph.variables if self._host.is_silent(self._graph.variable_owner(x)))
        self._moved |= silent ^ self._silent
        self._silent = silent
        if now >= self._schedule.decided:
            self._decide()
        for x in self._variables:
            if self._schedule.has_turn(x, now):
                self._move(x)
        if now >= self._schedule.compared and self._n_in_use > 1:
            self._compare(turn)
        else:
            self._send_utilities(turn)

    def _move(self, x: str) -> None:
        """Move a variable to its factors' largest sum in each joint start, once all but silent agents have answered."""
        summed = self._summed(x)
        if summed is None:
            return
        values, reach = self._offered(x)
        candidates, rows = self._candidates(x, values, reach), np.arange(self._n_in_use)
        best, stay = summed.argmax(axis=1), (candidates == values[:, None]).argmax(axis=1)
        is_better = summed[rows, best] > summed[rows, stay]  # strictly, or ties would cause offers for ever
        new_values = candidates[rows, np.where(is_better, best, stay)]
        is_far = np.abs(new_values - values) >= 0.9 * reach * self._sides[self._column[x]]
        scaled = np.clip(np.where(is_far, reach * _FINER, reach / _FINER), _FINEST, 1.0 / _FINER)
        next_reach = np.where(reach > 0.0, scaled, 0.0)
        # a repeated offer would make all answers to the previous offer useless
        if not np.array_equal([new_values, next_reach], [values, reach]):
            self._offer(x, new_values, next_reach)

    def _summed(self, x: str) -> Float[np.ndarray, "k v"] | None:
        """Sum of a variable's factors at its candidate values; None if an agent that is not silent has not answered."""
        offer, candidates = self._offers[x], self._candidates(x, *self._offered(x))
        summed = np.zeros(candidates.shape)
        for f in self._graph.factors_of(x):
            utility, owner = self._utilities.get((f, x)), self._graph.owner(f)
            if owner == self._host.name:
                summed += self._lines(f, x)
            elif utility is not None and (self._schedule.is_fixed or utility.number == offer.number):
                summed += self._in_use(x, utility.entries.reshape(-1, candidates.shape[1]))
            elif not self._host.is_silent(owner):
                return None
            elif self._shares:
                summed += self._lines(f, x)
        return summed

    def _lines(self, f: str, x: str) -> Float[np.ndarray, "k v"]:
        """A factor's values at a variable's candidates in each joint start; other variables keep their values."""
        candidates = self._candidates(x, *self._offered(x))
        joint_starts = np.repeat(np.arange(self._n_in_use), candidates.shape[1])
        U = self.assumed[joint_starts]
        U[:, self._column[x]] = candidates.ravel()
        return self._utility(f, U, joint_starts).reshape(candidates.shape)

    def _offer(self, x: str, values: Vector, reach: Vector) -> None:
        """Set a variable's values, and announce them to the owners that evaluate it."""
        before, graph = self._offers.get(x), self._graph
        offer = Offer(x, np.concatenate([values, reach]), 0 if before is None else before.number + 1)
        self._set_offer(offer)
        recipients = dict.fromkeys(graph.owner(f) for f in graph.factors_of(x))
        if self._shares:
            silent = [f for f in graph.factors_of(x) if self._host.is_silent(graph.owner(f))]
            recipients |= dict.fromkeys(graph.variable_owner(y) for f in silent for y in graph.scope(f))
        for other in recipients:
            self._host.put(other, offer, offer.number)

    def _send_utilities(self, turn: int) -> None:
        """Send own factors' values at each variable's candidates, if they changed enough since the last message; other
        variables keep their present values.
        """
        for f in self._factors:
            scope = self._graph.scope(f)
            if not any(x in self._moved for x in scope):
                continue
            for x in scope:
                # own variables are evaluated in their turn
                if x not in self._offers or (owner := self._graph.variable_owner(x)) == self._host.name:
                    continue
                utility = Utility(f, x, self._lines(f, x).ravel(), self._offers[x].number)
                before = self._host.last_announced(owner, utility.key)
                change = np.inf
                if isinstance(before, Utility) and (self._schedule.is_fixed or before.number == utility.number):
                    change = _change_of(before.entries, utility.entries, self._n_in_use)
                if change > self._schedule.threshold:
                    self._host.put(owner, utility, turn)
        self._moved.clear()

    def _compare(self, turn: int) -> None:
        joint_starts, assumed = np.arange(self._n_in_use), self.assumed
        for f in self._factors:
            values = self._utility(f, assumed, joint_starts)
            if f not in self._values or not np.array_equal(values, self._values[f]):
                self._values[f] = values
                self._host.put_to_all(Valued(f, values), turn)

    def _decide(self) -> None:
        """Continue from the joint start with the largest sum in each part of the graph."""
        if self._n_in_use == 1:
            return
        for part in self._graph.components:
            # added in the graph's order of factors, so that agents with all values choose the same joint start
            received = [self._values[f] for f in part.factors if f in self._values]
            best = int(np.sum(received, axis=0).argmax()) if received else 0
            columns = [self._column[x] for x in part.variables]
            self.points[:, columns] = self.points[best, columns]
            self._best |= dict.fromkeys(part.variables, best)
        self._n_in_use = 1
        for x in self._variables:
            if x in self._offers:
                self._offer(x, *self._offered(x))


def _change_of(before: Vector, now: Vector, n_joint_starts: int) -> float:
    """Largest change of a factor's values in a joint start, except for a constant, relative to their spread."""
    if before.shape != now.shape:
        return np.inf
    if not (np.isfinite(before).all() and np.isfinite(now).all()):
        return 0.0 if np.array_equal(before, now) else np.inf
    lines = now.reshape(n_joint_starts, -1)
    change = lines - before.reshape(n_joint_starts, -1)
    change -= change.mean(axis=1, keepdims=True)
    largest, spread = np.abs(change).max(axis=1), np.ptp(lines, axis=1)
    every = np.where(largest > 0.0, np.inf, 0.0)
    return float(np.divide(largest, spread, out=every, where=spread > largest * 1e-300).max())

"""Decentralised Monte-Carlo tree search, a comparison method for auctions (docs/studies/routes.md).

The value of a sequence is its gain over the others' measurements, W(own, others) - W(others), by ``targeted-variance``.
Source: Best, Cliff, Patten, Mettu & Fitch 2019, Dec-MCTS: decentralized planning for multi-robot active perception,
algorithms 1 to 3; the bound of the tree is their D-UCT, equation (8).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.acquisition import Situation
from swarmbo.acquisition.targeted_variance import TargetValue
from swarmbo.boundary.rng import stream
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.requests import AllReduce, Steps
from swarmbo.coordination.schema import each_own
from swarmbo.registry import FIELD, kind
from swarmbo.routing.pilot import Legs, Pilot, in_rounds, on_schedule, unspared
from swarmbo.routing.routes import RoutePlanner
from swarmbo.settings import Count, Positive, within

_BRANCHES = 24  # next way-points of a sequence: the most informative of the nearest
_DRAWS = 8  # joint sequences of the others over which a sequence is valued
_PARTS = 10  # of a step
_COOLEST = 0.05  # of the temperature, relative to the first

Stops = tuple[int, ...]  # of way-points, as indices of places


@kind("coordination", FIELD)
class DecMCTS(RoutePlanner, frozen=True, tag="dec-mcts"):
    """Decentralised Monte-Carlo tree search (Best et al. 2019) over sequences of way-points, repeated in every round.

    A sequence continues with one of the nearest way-points, in rounds of travel, until the horizon is full; the rest is
    drawn at random. Every agent makes the same number of draws. Several times a round it sends all others its best
    sequences with their probabilities, up and down a tree of the radio links. In the end each follows its most probable
    sequence, first leg first. Agents send their next locations sequentially.

    The reward of the paper is general; here it is that of ``targeted-variance``. Sequences are those of the tree's
    draws with the highest rewards; the paper takes the best of the nodes.

    Args:
        exchanges: Exchanges between agents in a round, >= 1.
        draws: Draws of each agent between two exchanges, >= 1.
        sequences: Sequences that an agent sends, 1 to 64.
        exploration: C_p of the bound, in units of the largest reward so far, > 0.
        discount: Weight of older rewards per draw, as others change their plans, 0.5 to 1.
        step: Step size of probabilities at an exchange, 0 to 1.

    The other settings are those of ``RoutePlanner``; ``horizon`` is 6 rounds by default.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo_envs import robot_team_v0
        >>> env = robot_team_v0.parallel_env(robots=4, max_cycles=3)
        >>> search = {"kind": "dec-mcts", "draws": 4}
        >>> team = sb.Team.for_env(env, acquisition="targeted-variance", coordination=search)
        >>> actions = team.act(*env.reset(seed=0))
        >>> team.last_report.status, team.last_report.messages > 0
        ('sequential', True)
    """

    horizon: Count | None = 6
    exchanges: Count = 10
    draws: Count = 20
    sequences: Annotated[int, within(1, 64)] = 10
    exploration: Positive = 0.4
    discount: Annotated[float, within(0.5, 1)] = 0.95
    step: Annotated[float, within(0, 1)] = 1.0

    def program(self, situation: Situation) -> "Callable[[LocalView, Mapping[str, Pilot]], Steps[Legs]]":
        """The search, with a separate stream for each agent."""

        def search(view: LocalView, own: Mapping[str, Pilot]) -> Steps[Legs]:
            rngs = {
                agent: stream(situation.seed, "dec-mcts", agent=agent, round=situation.round)
                for agent in view.variables
            }
            return searched(view, own, self, rngs)

        return search


def searched(
    view: LocalView, pilots: Mapping[str, Pilot], settings: DecMCTS, rngs: Mapping[str, np.random.Generator]
) -> Steps[Legs]:
    """Program of a process with some agents of a part; it reads the pilots of its own agents only."""
    agents, own = view.graph.variables, {agent: pilots[agent] for agent in view.variables}
    number, places = {agent: n for n, agent in enumerate(agents)}, next(iter(own.values())).places
    values = {id(pilot.gains): pilot.gains.utility.jointly(pilot.gains.belief, places) for pilot in own.values()}
    searchers = [_Searcher(pilot, values[id(pilot.gains)], settings, rngs[agent]) for agent, pilot in own.items()]
    longest = max(pilot.horizon for pilot in own.values())
    others: dict[str, _Told] = {}
    for exchange in range(settings.exchanges):
        told = np.zeros((len(searchers), len(agents), settings.sequences * (1 + longest)))
        for n, searcher in enumerate(searchers):
            name = searcher.pilot.agent
            candidate_models = [others[agent] for agent in agents if agent != name and agent in others]
            searcher.grow(candidate_models)
            searcher.weigh(candidate_models, 1.0 - (1.0 - _COOLEST) * exchange / max(settings.exchanges - 1, 1))
            told[n, number[name]] = searcher.told(longest)
        heard = yield AllReduce(told, each_own(agents, 0.0, float(len(places)), axis=0))
        others = {agent: _Told.of(row, settings.sequences) for agent, row in zip(agents, heard, strict=True)}
    planned = np.zeros(len(places), dtype=bool)
    for each in others.values():
        planned[list(each.measured[int(each.probability.argmax())])] = True
    tours = {searcher.pilot.agent: searcher.pilot.tour() for searcher in searchers}
    for searcher in searchers:
        for n, stop in enumerate(searcher.best()):
            tours[searcher.pilot.agent].put_in(stop, n)
    left_over = {agent: np.diag(values[id(pilot.gains)].told) for agent, pilot in own.items()}
    points = yield from on_schedule(agents, own, tours, left_over, planned, set())
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, settings.exchanges + len(agents))


@dataclass(frozen=True, eq=False)
class _Told:
    """Likely measurements of an agent: lists of place indices, and their probabilities."""

    measured: list[Stops]
    probability: Float[np.ndarray, " s"]

    @classmethod
    def of(cls, row: Float[np.ndarray, " m"], sequences: int) -> "_Told":
        table = row.reshape(sequences, -1)
        used = table[:, 0] > 0.0
        measured = [tuple((own[own > 0.0] - 1).astype(int).tolist()) for own in table[used, 1:]]
        if not measured:
            return cls([()], np.ones(1))
        return cls(measured, table[used, 0] / table[used, 0].sum())


@dataclass(eq=False)
class _Node:
    """Statistics of sequences with a common beginning; count and reward are discounted sums over draws through it."""

    untried: list[int]
    children: "dict[int, _Node]" = field(default_factory=dict[int, "_Node"])
    count: float = 0.0
    reward: float = 0.0


class _Searcher:
    def __init__(self, pilot: Pilot, value: TargetValue, settings: DecMCTS, rng: np.random.Generator) -> None:
        self.pilot, self._value, self._settings, self._rng = pilot, value, settings, rng
        self._alone = np.diag(value.told) / (np.diag(value.cov) + value.noise_variance)
        self._ways: dict[int, Float[np.ndarray, " p"]] = {}
        base = pilot.travel.base(pilot.agent)
        self._left, self._home = float(pilot.horizon), np.zeros(len(pilot.places))
        if base is not None:
            battery = float(pilot.travel.rounds_left(pilot.agent))
            home = in_rounds(pilot.travel.rounds(pilot.agent, pilot.places, base[None])[:, 0])
            self._left, self._home = min(self._left, battery), unspared(home, self._left, battery)
        self._root = _Node(self._moves((), self._left))
        self._drawn: dict[Stops, float] = {}
        self._likely: dict[Stops, float] = {(): 1.0}
        self._most = 0.0

    def best(self) -> Stops:
        """Most likely sequence; the first of equals."""
        return max(self._likely, key=lambda sequence: self._likely[sequence])

    def told(self, longest: int) -> Float[np.ndarray, " m"]:
        """Probabilities of sequences, each with its measured places, numbered from 1."""
        out = np.zeros((self._settings.sequences, 1 + longest))
        for row, (sequence, probability) in zip(out, self._likely.items(), strict=False):
            measured = sequence[:longest]
            row[0], row[1 : 1 + len(measured)] = probability, np.array(measured) + 1.0
        return out.ravel()

    def grow(self, others: Sequence[_Told]) -> None:
        """Draw sequences, each against one draw of the others' measurements."""
        self._drawn, discount = {}, self._settings.discount
        for _ in range(self._settings.draws):
            given = self._others(others)
            path, sequence, left = [self._root], list[int](), self._left
            # selection down to a node with untried moves, expansion by one, then a random roll-out
            while not path[-1].untried and path[-1].children:
                place = self._chosen(path[-1])
                left -= self._way(sequence)[place]
                sequence.append(place)
                path.append(path[-1].children[place])
            if path[-1].untried:
                place = path[-1].untried.pop(int(self._rng.integers(len(path[-1].untried))))
                left -= self._way(sequence)[place]
                sequence.append(place)
                path[-1].children[place] = node = _Node(self._moves(sequence, left))
                path.append(node)
            while moves := self._moves(sequence, left):
                place = moves[int(self._rng.integers(len(moves)))]
                left -= self._way(sequence)[place]
                sequence.append(place)
            reward = self._reward(tuple(sequence), given)
            self._drawn[tuple(sequence)] = reward
            self._most = max(self._most, reward)
            for node, beside in zip(path, [None, *path[:-1]], strict=True):
                for other in () if beside is None else beside.children.values():
                    # older statistics count less, as others have changed their plans since
                    if other is not node:
                        other.count, other.reward = discount * other.count, discount * other.reward
                node.count, node.reward = discount * node.count + 1.0, discount * node.reward + reward

    def weigh(self, others: Sequence[_Told], temperature: float) -> None:
        """Choose the sequences to send, and update their probabilities by descent, as in the paper's algorithm 3."""
        ranked = sorted(self._drawn, key=lambda sequence: -self._drawn[sequence])  # sorted() is stable
        before = [own for own in sorted(self._likely, key=lambda own: -self._likely[own]) if own]
        keep = dict.fromkeys(before[: self._settings.sequences // 2])
        listed = list(dict.fromkeys([*keep, *ranked]))[: self._settings.sequences]
        if self.pilot.price is not None or not listed:
            listed = [(), *listed][: self._settings.sequences]
        draws = [self._others(others) for _ in range(_DRAWS)] if others else [()]
        expected = np.array([np.mean([self._reward(own, given) for given in draws]) for own in listed])
        q = np.array([self._likely.get(own, 1.0 / len(listed)) for own in listed])
        q /= q.sum()
        unit = max(float(np.abs(expected).max()), np.finfo(float).tiny)
        for _ in range(_PARTS):
            # descent on the simplex of the expected loss minus temperature times entropy (algorithm 3)
            gap = (q @ expected - expected) / (unit * temperature)
            q = q - self._settings.step / _PARTS * q * (gap - q @ np.log(q) + np.log(q))
            q = np.maximum(q, 1e-9)
            q /= q.sum()
        self._likely = dict(zip(listed, q.tolist(), strict=True))

    def _chosen(self, node: _Node) -> int:
        """Child with the highest bound, D-UCT; the first of equals."""
        unit = self._most or 1.0

        def bound(place: int) -> float:
            child = node.children[place]
            width = math.sqrt(max(math.log(node.count), 0.0) / max(child.count, 1e-9))
            return child.reward / (unit * max(child.count, 1e-9)) + 2.0 * self._settings.exploration * width

        return max(node.children, key=bound)

    def _others(self, told: Sequence[_Told]) -> Stops:
        """Draw of the others' measurements."""
        return tuple(
            place
            for each in told
            for place in each.measured[int(self._rng.choice(len(each.measured), p=each.probability))]
        )

    def _reward(self, sequence: Stops, given: Stops) -> float:
        price = 0.0 if self.pilot.price is None else self.pilot.price * len(sequence)
        return self._utility((*given, *sequence)) - self._utility(given) - price

    def _utility(self, rows: Stops) -> float:
        return self._value.of_set(rows) if rows else 0.0

    def _way(self, sequence: Sequence[int]) -> Float[np.ndarray, " p"]:
        """Rounds to each place from the end of a sequence."""
        here = sequence[-1] if sequence else -1
        if here not in self._ways:
            start = self.pilot.start if here < 0 else self.pilot.places[here]
            told = None if start is None else self.pilot.travel.rounds(self.pilot.agent, start[None], self.pilot.places)
            self._ways[here] = np.full(len(self.pilot.places), np.inf) if told is None else in_rounds(told[0])
        return self._ways[here]

    def _moves(self, sequence: Sequence[int], left: float) -> list[int]:
        """Next moves of a sequence: the nearest open places that still permit the return to base."""
        rounds = self._way(sequence)
        open_places: Bool[np.ndarray, " p"] = self.pilot.is_open & (rounds + self._home <= left)
        open_places[list(sequence)] = False
        if not open_places.any():
            return []
        near = np.flatnonzero(open_places & (rounds == rounds[open_places].min()))
        return near[np.argsort(-self._alone[near], kind="stable")[:_BRANCHES]].tolist()

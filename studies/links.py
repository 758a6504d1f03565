"""Quality of agreements by a deadline over links with faults, as shares of the optimum of the same decision.

    python studies/links.py                         # runs cells missing in links.jsonl, seeds 0 to 19, prints the table
    python studies/links.py --world wlan --case "no faults" "50 %"
    python studies/links.py --page                  # puts the tables in docs/studies/links.md

Decisions are recorded in the scenarios robots, field (sensors) and wlan, or drawn at random on two sorts of graphs with
loops (those of docs/studies/bounds.md). The share of an agreement is (value - random) / (best - random). Here random is
the mean of allowed random choices. The best value is that of exact elimination or, on WLANs, of ADMM in lockstep
without faults. An agent without a choice counts with the worst allowed value of its factors. If an agent fails during
the decision, the share counts only factors of the other agents, with the failed agent at the best value for each
factor. On WLANs, all factors count.
"""

import functools
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from certificates import dense, problems, sparse
from study import Line, Study, markdown, play, select

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.deadline_box import maximise_by_deadline
from swarmbo.coordination.deadline_tables import agree_by_deadline
from swarmbo.coordination.participant import maximise_with_agents, solve_with_agents
from swarmbo.errors import BudgetError
from swarmbo.graph import BoxFunctions, stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.runs.scenario import make_environment
from swarmbo.runs.scenario_files import load
from swarmbo.transport import Event, Faults

Tables = Mapping[str, np.ndarray]
Found = tuple[float, float, int]  # value, kB sent, number of agents without a choice
RANDOM_CHOICES, RANDOM_POINTS = 200, 2000
FULL = "environment.airtime=full"


class World(NamedTuple):
    """A scenario, the round whose decision is recorded, deadline and patience in ticks, and further settings."""

    scenario: str
    round: int
    deadline: int
    patience: int
    more: tuple[str, ...] = ()


WORLDS = {
    "robots": World("robots", 3, 60, 20),
    "sensors": World("field", 1, 80, 26),
    "loopy": World("", 0, 80, 26),
    "dense": World("", 0, 80, 26),
    "wlan": World("wlan", 16, 100, 16, (FULL,)),
    "wlan totals": World("wlan", 16, 100, 16, (FULL, "environment.outcomes=total")),
}
SORTS = {"loopy": sparse, "dense": dense}
ALONE, LOCKSTEP, LOSSY = "independent", "lockstep, no faults", "lockstep, 30 %"
DSA, MGM = "DSA, no faults", "MGM, no faults"
FAILURE, CURVE = "30 %, an agent fails", "30 %, delay up to 5"
FAULTS = {
    "no faults": Faults(),
    "10 % loss": Faults(loss=0.1),
    "30 %": Faults(loss=0.3),
    "50 %": Faults(loss=0.5),
    CURVE: Faults(loss=0.3, delay=5),
    "50 %, delay up to 5": Faults(loss=0.5, delay=5),
}
THRESHOLDS = {f"threshold {threshold:g}": threshold for threshold in (0.0, 0.01, 0.1, 0.3)}
CASES = (ALONE, LOCKSTEP, DSA, MGM, LOSSY, *FAULTS, FAILURE)
SHOWN = [case for case in CASES if case not in (MGM, "10 % loss", "50 %")]
LABELS = {case: f"deadline, {case}" for case in (*FAULTS, FAILURE)} | {
    DSA: "lockstep DSA, no faults",
    MGM: "lockstep MGM, no faults",
    LOSSY: "lockstep, 30 % loss",
    "30 %": "deadline, 30 % loss",
    "50 %": "deadline, 50 % loss",
    CURVE: "deadline, 30 % loss, delay",
    "50 %, delay up to 5": "deadline, 50 % loss, delay",
    FAILURE: "deadline, 30 % loss, failure",
}


class TableRecorder:
    """Exact elimination that records the tables of its last agreement."""

    asked: Any = None

    def solve(self, graph: sb.FactorGraph, tables: Mapping[str, Any], links: Any = None) -> sb.Solution:
        """Agree on tables."""
        self.asked = graph, {factor: np.asarray(table) for factor, table in tables.items()}, links
        return sb.Exact().solve(graph, tables, links)


class BoxRecorder:
    """ADMM that records the functions of its last agreement."""

    asked: Any = None

    def maximise(self, functions: BoxFunctions, links: Any = None, seed: int = 0) -> Agreement:
        """Agree on functions."""
        self.asked = functions, links, seed
        return sb.ADMM().maximise(functions, links, seed)


def recorded(world: str, seed: int) -> Any:
    """Tables or functions of the decision in the last of ``round`` rounds of a scenario."""
    name, rounds, _, _, more = WORLDS[world]
    recorder = BoxRecorder() if name == "wlan" else TableRecorder()
    scenario = load(name, [f"seed={seed}", f"rounds={rounds}", *more])
    env = make_environment(scenario)
    parts = {"belief": scenario.belief, "acquisition": scenario.acquisition, "seed": seed}
    for _ in islice(play(env, sb.Team.for_env(env, coordination=recorder, **parts), seed), rounds):
        pass
    return recorder.asked


class Decision:
    """A decision and its result in each case; subclasses define ``of`` and ``after_failure``.

    Args:
        world: Name of the decision's world.
        seed: Seed of the run, or number of the random graph.
    """

    agents: tuple[str, ...]
    links: Any
    best: float
    floor: float

    def __init__(self, world: str, seed: int) -> None:
        self.world, self.seed, own = world, seed, WORLDS[world]
        self.deadline, self.mode = own.deadline, {"mode": "asynchronous", "deadline": own.deadline}
        self.mode["patience"] = own.patience

    def found(self, case: str) -> tuple[Found, float, float]:
        """Result of a case, and the best and the mean possible value."""
        return self.after_failure() if case == FAILURE else (self.of(case), self.best, self.floor)

    def opened(self, faults: Faults) -> Any:
        """Links with faults."""
        return faults.open(self.agents, self.links, seed=self.seed)

    def faults_with(self, agent: str, rng: np.random.Generator) -> Faults:
        """Faults by which messages are lost and one agent fails during the decision."""
        event = Event(agent=agent, round=0, step=int(rng.integers(1, self.deadline)))
        return Faults(loss=0.3, deaths=(event,))


class Tabled(Decision):
    """A decision by tables: max-sum."""

    METHODS = {LOCKSTEP: sb.MaxSum(), DSA: sb.DSA(), MGM: sb.MGM()}  # noqa: RUF012

    def __init__(self, world: str, seed: int) -> None:
        super().__init__(world, seed)
        if world in SORTS:
            self.graph, self.tables = problems(SORTS[world], seed + 1)[-1]
            self.links = None
        else:
            self.graph, self.tables, self.links = recorded(world, seed)
        self.agents = self.graph.agents
        self.best = sb.Exact().solve(self.graph, self.tables, self.links).value
        self.floor = at_random(self.graph, self.tables, stream(seed, "random choices"))

    def of(self, case: str) -> Found:
        """Result of a case without a failed agent; if independent choices clash, the later agent has no choice."""
        if case == ALONE:
            chosen, clashes = alone(self.graph, self.tables)
            return value(self.graph, self.tables, chosen), 0.0, clashes
        if case == LOSSY:
            found = solve_with_agents(sb.MaxSum(), self.graph, self.tables, self.opened(FAULTS["30 %"]))
            return found.value, found.report.bytes / 1000, 0
        if case in self.METHODS:
            found = self.METHODS[case].solve(self.graph, self.tables, self.links)
            return max(found.value, self.floor), found.report.bytes / 1000, 0
        solution = self.solution(FAULTS.get(case, FAULTS[CURVE]), THRESHOLDS.get(case, 0.01))
        return result_of(self.graph, self.tables, solution)

    def solution(self, faults: Faults, threshold: float = 0.01) -> sb.Solution:
        """The choice by a deadline."""
        method = sb.MaxSum(**self.mode, threshold=threshold)
        return agree_by_deadline(method, self.graph, self.tables, self.opened(faults), guesses=False)

    def after_failure(self) -> tuple[Found, float, float]:
        """Result of the other agents after one has failed, and their best and mean possible value."""
        graph, rng = self.graph, stream(self.seed, "death")
        failed = graph.variables[int(rng.integers(len(graph.variables)))]
        solution = self.solution(self.faults_with(graph.variable_owner(failed), rng))
        remaining, tables = without(graph, self.tables, failed)
        best, floor = sb.Exact().solve(remaining, tables).value, at_random(remaining, tables, rng)
        return result_of(remaining, tables, solution), best, floor


class Boxed(Decision):
    """A decision by functions: ADMM."""

    METHODS = {LOCKSTEP: sb.ADMM(), DSA: sb.RefinedDSA(), MGM: sb.RefinedMGM()}  # noqa: RUF012

    def __init__(self, world: str, seed: int) -> None:
        super().__init__(world, seed)
        self.functions, self.links, self.drawn = recorded(world, seed)
        functions, rng = self.functions, stream(seed, "random points")
        self.agents = functions.graph.agents
        self.points = functions.low + rng.random((RANDOM_POINTS, len(functions.low))) * (functions.high - functions.low)
        self.best, self.floor = self.of(LOCKSTEP)[0], float(total_value(functions, self.points).mean())

    def of(self, case: str) -> Found:
        """Result of a case without a failed agent."""
        if case == ALONE:
            return float(total_value(self.functions, self.alone()[None])[0]), 0.0, 0
        if case == LOSSY:
            found = maximise_with_agents(sb.ADMM(), self.functions, self.opened(FAULTS["30 %"]), self.drawn)
        elif case in self.METHODS:
            found = self.METHODS[case].maximise(self.functions, self.links, self.drawn)
        else:
            return self.by_deadline(FAULTS.get(case, FAULTS[CURVE]), THRESHOLDS.get(case, 0.01))
        return found.value, found.report.bytes / 1000, 0

    def alone(self) -> np.ndarray:
        """The point at which each agent maximises its own factor over random points."""
        functions, graph = self.functions, self.functions.graph
        point = functions.starts[0].copy()
        for f in graph.factors:
            (stack,) = stacks_of(graph, [f])
            silence = tuple(np.zeros((1, RANDOM_POINTS)) for _ in range(functions.n_exchanges))
            best = int(functions.value(stack, stack.take(self.points), silence)[0].argmax())
            for x in graph.variables_owned_by(graph.owner(f)):
                point[graph.column_of[x]] = self.points[best, graph.column_of[x]]
        return point

    def by_deadline(self, faults: Faults, threshold: float = 0.01) -> Found:
        """Result of ADMM with a deadline."""
        method, shares = sb.ADMM(**self.mode, threshold=threshold), self.world == "wlan totals"
        found = maximise_by_deadline(method, self.functions, self.opened(faults), self.drawn, shares=shares)
        return found.value, found.report.bytes / 1000, 0

    def after_failure(self) -> tuple[Found, float, float]:
        """Result with a failed agent, whose variables stay at the best evaluation."""
        rng = stream(self.seed, "death")
        failed = self.agents[int(rng.integers(len(self.agents)))]
        return self.by_deadline(self.faults_with(failed, rng)), self.best, self.floor


def result_of(graph: sb.FactorGraph, tables: Tables, solution: sb.Solution) -> Found:
    """Value of a solution in the factors of a graph, kilobytes sent, and number of agents without a choice."""
    chosen = {x: index for x, index in solution.assignment.items() if x in graph.variables}
    return value(graph, tables, chosen), solution.report.bytes / 1000, len(graph.variables) - len(chosen)


def value(graph: sb.FactorGraph, tables: Tables, chosen: Mapping[str, int]) -> float:
    """Sum of the factors.

    If the first agent of a factor has no choice, the factor counts with its worst allowed value. Other agents without a
    choice count as at the factor's best value.
    """
    summed = 0.0
    for factor in graph.factors:
        own, *_ = scope = graph.scope(factor)
        entries = tables[factor][tuple(chosen.get(x, slice(None)) for x in scope)]
        finite = entries[entries > -np.inf] if own not in chosen else np.array([entries.max()])
        summed += float(finite.min())
    return summed


def at_random(graph: sb.FactorGraph, tables: Tables, rng: np.random.Generator) -> float:
    """Mean value of random joint choices, of which forbidden ones are left out."""
    sizes = {x: n for f in graph.factors for x, n in zip(graph.scope(f), tables[f].shape, strict=True)}
    found: list[float] = []
    for _ in range(100 * RANDOM_CHOICES):
        drawn = {x: int(rng.integers(n)) for x, n in sizes.items()}
        if (summed := value(graph, tables, drawn)) > -np.inf:
            found.append(summed)
        if len(found) == RANDOM_CHOICES:
            break
    return float(np.mean(found))


def alone(graph: sb.FactorGraph, tables: Tables) -> tuple[dict[str, int], int]:
    """Each agent's best choice by its own factor, and the number of agents without one: the later ones of clashes."""
    chosen: dict[str, int] = {}
    for x in graph.variables:
        own = [f for f in graph.factors if graph.scope(f)[0] == x] or graph.factors_of(x)
        moved = [np.moveaxis(tables[f], graph.scope(f).index(x), 0) for f in own]
        best = np.array([table.reshape(len(table), -1).max(axis=1) for table in moved])
        chosen[x] = int(best.sum(axis=0).argmax())
    stays = {
        y
        for f in graph.factors
        for i, x in enumerate(graph.scope(f))
        for j, y in enumerate(graph.scope(f)[i + 1 :], start=i + 1)
        if (np.moveaxis(tables[f], (i, j), (0, 1))[chosen[x], chosen[y]] == -np.inf).all()
    }
    return {x: index for x, index in chosen.items() if x not in stays}, len(stays)


def without(graph: sb.FactorGraph, tables: Tables, failed: str) -> tuple[sb.FactorGraph, dict[str, np.ndarray]]:
    """Graph and tables of the other agents' factors, maximised over the failed agent's variable."""
    scopes = {f: [x for x in graph.scope(f) if x != failed] for f in graph.factors if graph.scope(f)[0] != failed}
    left = {
        f: tables[f].max(axis=graph.scope(f).index(failed)) if failed in graph.scope(f) else tables[f] for f in scopes
    }
    owners = {f: graph.owner(f) for f in scopes}
    names = {x: graph.variable_owner(x) for scope in scopes.values() for x in scope}
    return sb.FactorGraph.from_scopes(scopes, owners=owners, variable_owners=names), left


@functools.lru_cache(maxsize=1)
def decision(world: str, seed: int) -> Decision:
    """The decision of a world and a seed, which all cases share."""
    return (Boxed if world.startswith("wlan") else Tabled)(world, seed)


def run(world: str, seed: int, case: str) -> Line | None:
    """Share, kB and agents without a choice; None if a table would be too large."""
    try:
        (found, n_bytes, idle), best, floor = decision(world, seed).found(case)
    except BudgetError:
        return None
    return {"share": round((found - floor) / (best - floor), 4), "kB": round(n_bytes, 1), "without": idle}


def table(lines: list[Line]) -> Iterator[str]:
    """The table of the cases that the page shows."""
    counts = {world: len(select(lines, world=world, case="no faults")) for world in WORLDS}
    worlds = [world for world in WORLDS if counts[world]]

    def cell(world: str, case: str) -> str:
        if not (own := select(lines, world=world, case=case)):
            return "–"
        share, n_bytes, idle = (np.array([line[key] for line in own]) for key in ("share", "kB", "without"))
        without = f", {int(idle.sum())} idle" if idle.any() else ""
        of = "" if len(own) == counts[world] else f" ({len(own)} seeds)"
        return f"{share.mean():.3f} ({share.min():.2f}), {n_bytes.mean():.0f}{without}{of}"

    head = ["case", *(f"{world}, {counts[world]} seeds" for world in worlds)]
    yield from markdown(head, [[LABELS.get(case, case), *(cell(world, case) for world in worlds)] for case in SHOWN])


CHOICES = {"world": tuple(WORLDS), "seed": range(20), "case": (*CASES, *THRESHOLDS)}
STUDY = Study(__doc__, "links.jsonl", run, CHOICES, table, page=("studies/links.md", "agreements"))

if __name__ == "__main__":
    STUDY.main()

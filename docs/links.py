"""How good agreements by a deadline are over links with faults, beside the lossless optimum of the same decision.

    python docs/links.py                         # what is missing of docs/links.jsonl, seeds 0 to 19; then the tables
    python docs/links.py --seeds 0-19 --worlds wlan --only "no faults" "50 %"
    python docs/links.py --table                 # the tables of docs/links.md, from what is there

What agents agree on is recorded in the scenarios robots, field (sensors) and wlan, and drawn at random for two sorts of
graphs with loops (those of docs/certificates.md). The share of an agreement is (value - random) / (best - random):
random is the mean of random choices that are allowed, best that of exact elimination, or of lockstep ADMM without
faults on WLANs. Agents that come out with no choice are worth what the worst place of their own is. Of a death in
mid-decision the share is that of the survivors, by their own factors, in which the dead is wherever that is best; on
WLANs, where all goes on, it is that of the whole.
"""

import argparse
import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from certificates import dense, problems, sparse

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.by_deadline import agree_by_deadline, maximise_by_deadline
from swarmbo.coordination.local_functions import LocalFunctions, total_value
from swarmbo.coordination.participant import maximise_with_agents, solve_with_agents
from swarmbo.errors import BudgetError
from swarmbo.graph import stacks_of
from swarmbo.runs.scenario import load, make_environment
from swarmbo.transport import Event, Faults

Tables = Mapping[str, np.ndarray]
Found = tuple[float, float, int]  # value, kB that were sent, agents that came out with no choice
FILE = Path(__file__).parent / "links.jsonl"
RANDOM_CHOICES, RANDOM_POINTS = 200, 2000
WORLDS = {  # scenario, round, deadline, patience, and what else is set
    "robots": ("robots", 3, 60, 20, []),
    "sensors": ("field", 1, 80, 26, []),
    "loopy": ("", 0, 80, 26, []),
    "dense": ("", 0, 80, 26, []),
    "wlan": ("wlan", 16, 100, 16, []),
    "wlan totals": ("wlan", 16, 100, 16, ["environment.outcomes=total"]),
}
CASES = {
    "no faults": Faults(),
    "10 % loss": Faults(loss=0.1),
    "30 %": Faults(loss=0.3),
    "50 %": Faults(loss=0.5),
    "30 %, delay up to 5": Faults(loss=0.3, delay=5),
    "50 %, delay up to 5": Faults(loss=0.5, delay=5),
}
DEATH, CURVE = "30 %, one dies in mid-decision", "30 %, delay up to 5"
OTHERS = ("lockstep, no faults", "DSA, no faults", "MGM, no faults", "lockstep, 30 %")
LOCKSTEP, DSA, MGM, LOSSY = OTHERS
SORTS = {"loopy": sparse, "dense": dense}
THRESHOLDS = (0.0, 0.01, 0.1, 0.3)


class TableRecorder:
    """A way to agree that keeps what was agreed on."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def solve(
        self, graph: sb.FactorGraph, tables: Mapping[str, Any], links: "nx.Graph[Any] | None" = None
    ) -> sb.Solution:
        """By exact elimination."""
        self.asked.append((graph, {factor: np.asarray(table) for factor, table in tables.items()}, links))
        return sb.Exact().solve(graph, tables, links)


class BoxRecorder:
    """The same of functions."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0) -> Agreement:
        """By ADMM."""
        self.asked.append((functions, links, seed))
        return sb.ADMM().maximise(functions, links, seed)


def recorded(world: str, seed: int) -> Any:
    """What agents agree on in the last of some rounds of a scenario."""
    name, rounds, _, _, more = WORLDS[world]
    recorder = BoxRecorder() if name == "wlan" else TableRecorder()
    scenario = load(name, [f"seed={seed}", f"rounds={rounds}", *more])
    env = make_environment(scenario)
    parts = {"belief": scenario.belief, "acquisition": scenario.acquisition, "seed": seed}
    team = sb.Team.for_env(env, coordination=recorder, **parts)
    observations, infos = env.reset(seed=seed)
    for _ in range(rounds):
        step = env.step(team.act(observations, infos))
        observations, infos = step[0], step[4]
        team.observe(*step)
    return recorder.asked[-1]


class Tabled:
    """A decision by tables.

    Args:
        world: Its name.
        seed: Of the run, or the number of the random graph.
    """

    def __init__(self, world: str, seed: int) -> None:
        if world in SORTS:
            self.graph, self.tables = problems(SORTS[world], seed + 1)[-1]
            self.links = None
        else:
            self.graph, self.tables, self.links = recorded(world, seed)
        _, _, self.deadline, self.patience, _ = WORLDS[world]
        self.seed = seed
        self.best = sb.Exact().solve(self.graph, self.tables, self.links).value
        self.floor = at_random(self.graph, self.tables, stream(seed, "random choices"))

    def alone(self) -> Found:
        """Each agent where its own factor is largest, wherever others go; where two would clash the later one stays."""
        chosen, clashes = alone(self.graph, self.tables)
        return value(self.graph, self.tables, chosen), 0.0, clashes

    def others(self) -> dict[str, Callable[[], Found]]:
        """Lockstep methods, without faults; and what max-sum takes with some."""
        graph, tables, links = self.graph, self.tables, self.links

        def clean(method: sb.MaxSum | sb.DSA | sb.MGM) -> Found:
            found = method.solve(graph, tables, links)
            return max(found.value, self.floor), found.report.bytes / 1000, 0

        def lossy() -> Found:
            opened = CASES["30 %"].open(graph.agents, links, seed=self.seed)
            found = solve_with_agents(sb.MaxSum(), graph, tables, opened)
            return found.value, found.report.bytes / 1000, 0

        return {
            LOCKSTEP: lambda: clean(sb.MaxSum()),
            DSA: lambda: clean(sb.DSA()),
            MGM: lambda: clean(sb.MGM()),
            LOSSY: lossy,
        }

    def by_deadline(self, faults: Faults, threshold: float = 0.01) -> Found:
        """Max-sum by a deadline."""
        graph, tables = self.graph, self.tables
        found = agree_by_deadline(
            sb.MaxSum(mode="asynchronous", deadline=self.deadline, patience=self.patience, threshold=threshold),
            graph,
            tables,
            faults.open(graph.agents, self.links, seed=self.seed),
        ).said
        idle = len(graph.variables) - len(found.assignment)
        return value(graph, tables, found.assignment), found.report.bytes / 1000, idle

    def after_death(self) -> tuple[Found, float, float]:
        """What survivors choose, and the best and the mean that they could."""
        graph, rng = self.graph, stream(self.seed, "death")
        dead = graph.variables[int(rng.integers(len(graph.variables)))]
        event = Event(agent=graph.variable_owner(dead), round=0, step=int(rng.integers(1, self.deadline)))
        faults = Faults(loss=0.3, deaths=(event,))
        method = sb.MaxSum(mode="asynchronous", deadline=self.deadline, patience=self.patience)
        said = agree_by_deadline(method, graph, self.tables, faults.open(graph.agents, self.links, seed=self.seed)).said
        left, of_them = without(graph, self.tables, dead)
        chosen = {x: index for x, index in said.assignment.items() if x in left.variables}
        best, floor = sb.Exact().solve(left, of_them).value, at_random(left, of_them, rng)
        found = value(left, of_them, chosen), said.report.bytes / 1000, len(left.variables) - len(chosen)
        return found, best, floor


class Boxed:
    """A decision by functions.

    Args:
        world: Its name.
        seed: Of the run.
    """

    def __init__(self, world: str, seed: int) -> None:
        self.functions, self.links, self.drawn = recorded(world, seed)
        _, _, self.deadline, self.patience, _ = WORLDS[world]
        self.seed, self.shares = seed, world == "wlan totals"
        functions, rng = self.functions, stream(seed, "random points")
        self.points = functions.low + rng.random((RANDOM_POINTS, len(functions.low))) * (functions.high - functions.low)
        self.lockstep = sb.ADMM().maximise(functions, self.links, self.drawn)
        self.best, self.floor = self.lockstep.value, float(total_value(functions, self.points).mean())

    def alone(self) -> Found:
        """Each agent where its own factor is largest, wherever others are."""
        functions, graph = self.functions, self.functions.graph
        point = functions.starts[0].copy()
        for f in graph.factors:
            (stack,) = stacks_of(graph, [f])
            silence = tuple(np.zeros((1, RANDOM_POINTS)) for _ in range(functions.n_exchanges))
            best = int(functions.value(stack, stack.take(self.points), silence)[0].argmax())
            for x in graph.variables_owned_by(graph.owner(f)):
                point[graph.column_of[x]] = self.points[best, graph.column_of[x]]
        return float(total_value(functions, point[None])[0]), 0.0, 0

    def others(self) -> dict[str, Callable[[], Found]]:
        """Lockstep methods, without faults; and what ADMM takes with some."""

        def clean(method: sb.RefinedDSA | sb.RefinedMGM) -> Found:
            found = method.maximise(self.functions, self.links, self.drawn)
            return found.value, found.report.bytes / 1000, 0

        def lossy() -> Found:
            opened = CASES["30 %"].open(self.functions.graph.agents, self.links, seed=self.seed)
            found = maximise_with_agents(sb.ADMM(), self.functions, opened, self.drawn)
            return found.value, found.report.bytes / 1000, 0

        return {
            LOCKSTEP: lambda: (self.best, self.lockstep.report.bytes / 1000, 0),
            DSA: lambda: clean(sb.RefinedDSA()),
            MGM: lambda: clean(sb.RefinedMGM()),
            LOSSY: lossy,
        }

    def by_deadline(self, faults: Faults, threshold: float = 0.01) -> Found:
        """ADMM by a deadline."""
        found = maximise_by_deadline(
            sb.ADMM(mode="asynchronous", deadline=self.deadline, patience=self.patience, threshold=threshold),
            self.functions,
            faults.open(self.functions.graph.agents, self.links, seed=self.seed),
            self.drawn,
            shares=self.shares,
        )
        return found.value, found.report.bytes / 1000, 0

    def after_death(self) -> tuple[Found, float, float]:
        """What comes of all: the dead one's variables stand where the best evaluation was."""
        agents, rng = self.functions.graph.agents, stream(self.seed, "death")
        dead, step = agents[int(rng.integers(len(agents)))], int(rng.integers(1, self.deadline))
        faults = Faults(loss=0.3, deaths=(Event(agent=dead, round=0, step=step),))
        return self.by_deadline(faults), self.best, self.floor


def value(graph: sb.FactorGraph, tables: Tables, chosen: Mapping[str, int]) -> float:
    """Sum of the factors; of agents that chose nothing the worst of their own, and elsewhere the best for others."""
    summed = 0.0
    for factor in graph.factors:
        own, *_ = scope = graph.scope(factor)
        entries = tables[factor][tuple(chosen.get(x, slice(None)) for x in scope)]
        finite = entries[entries > -np.inf] if own not in chosen else np.array([entries.max()])
        summed += float(finite.min())
    return summed


def at_random(graph: sb.FactorGraph, tables: Tables, rng: np.random.Generator) -> float:
    """Mean value of random choices that are allowed: each agent in turn takes one that is."""
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
    """Each agent by its own factor, wherever others go; and how many pairs clash. The later of two then stays."""
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


def without(graph: sb.FactorGraph, tables: Tables, dead: str) -> tuple[sb.FactorGraph, dict[str, np.ndarray]]:
    """What survivors agree on: their own factors, in which the dead is wherever that is best."""
    scopes = {f: [x for x in graph.scope(f) if x != dead] for f in graph.factors if graph.scope(f)[0] != dead}
    left = {f: tables[f].max(axis=graph.scope(f).index(dead)) if dead in graph.scope(f) else tables[f] for f in scopes}
    owners = {f: graph.owner(f) for f in scopes}
    names = {x: graph.variable_owner(x) for scope in scopes.values() for x in scope}
    return sb.FactorGraph.from_scopes(scopes, owners=owners, variable_owners=names), left


def measured(world: str, seed: int, known: Collection[str], only: Collection[str]) -> dict[str, list[float]]:
    """Share, kB and agents without a choice, by case: of those that are not known yet."""
    names = ["independent", *OTHERS, *CASES, DEATH, *(f"threshold {threshold:g}" for threshold in THRESHOLDS)]
    missing = [name for name in names if name not in known and (not only or name in only)]
    if not missing:
        return {}
    problem = Boxed(world, seed) if world.startswith("wlan") else Tabled(world, seed)

    def share(found: Found, best: float = problem.best, floor: float = problem.floor) -> list[float]:
        return [round((found[0] - floor) / (best - floor), 4), round(found[1], 1), found[2]]

    by_name: dict[str, Callable[[], list[float]]] = {"independent": lambda: share(problem.alone())}
    by_name |= {name: lambda of=of: share(of()) for name, of in problem.others().items()}
    by_name |= {name: lambda faults=faults: share(problem.by_deadline(faults)) for name, faults in CASES.items()}
    by_name[DEATH] = lambda: share(*problem.after_death())
    by_name |= {
        f"threshold {threshold:g}": lambda t=threshold: share(problem.by_deadline(CASES[CURVE], t))
        for threshold in THRESHOLDS
    }
    found: dict[str, list[float]] = {}
    for name in missing:
        with contextlib.suppress(BudgetError):  # a factor of all twelve variables has no table
            found[name] = by_name[name]()
    return found


def results() -> dict[tuple[str, int], dict[str, list[float]]]:
    """What is there; a later line has further cases."""
    lines = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(dict)
    for line in lines:
        if "cases" in line:
            found[line["world"], line["seed"]] |= line["cases"]
    return found


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def table() -> None:
    """The tables, in Markdown."""
    rows: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for (world, _), cases in results().items():
        for case, numbers in cases.items():
            rows[case][world].append(numbers)
    worlds = [world for world in WORLDS if world in rows["no faults"]]
    counts = {world: len(rows["no faults"][world]) for world in worlds}
    say("| share (least), kB; of seeds | " + " | ".join(f"{world}, {counts[world]}" for world in worlds) + " |")
    say("|---" * (1 + len(worlds)) + "|")
    for case in ("independent", *OTHERS, *CASES, DEATH):
        say(f"| {case} | " + " | ".join(_cell(rows[case][world], counts[world]) for world in worlds) + " |")
    say(f"\n| threshold; {CURVE} | " + " | ".join(worlds) + " |")
    say("|---" * (1 + len(worlds)) + "|")
    for threshold in THRESHOLDS:
        cells = (_cell(rows[f"threshold {threshold:g}"][world], counts[world]) for world in worlds)
        say(f"| {threshold:g} | " + " | ".join(cells) + " |")


def _cell(numbers: list[list[float]], count: int) -> str:
    if not numbers:
        return "–"
    share, n_bytes, idle = np.array(numbers).T
    without = f", {int(idle.sum())} without" if idle.any() else ""
    of = "" if len(numbers) == count else f"; of {len(numbers)}"
    return f"{share.mean():.3f} ({share.min():.2f}), {n_bytes.mean():.0f}{without}{of}"


def main() -> None:
    """Work out what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0-19", help="first and last")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--only", nargs="+", default=(), metavar="CASE", help="rows; by default all")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    for seed in range(first, last + 1) if not options.table else ():
        for world in options.worlds:
            if cases := measured(world, seed, results()[world, seed], options.only):
                with FILE.open("a") as out:
                    out.write(json.dumps({"world": world, "seed": seed, "cases": cases}) + "\n")
    table()


if __name__ == "__main__":
    main()

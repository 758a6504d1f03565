"""How good agreements by a deadline are over links with faults, beside the lossless optimum of the same decision.

    python docs/links.py                   # the table of docs/links.md: 20 seeds, about a quarter of an hour
    python docs/links.py --seeds 0-4       # fewer

What agents agree on is recorded in the third round of the scenarios robots and field. The share of an agreement is
(value - random) / (best - random), random being the mean of random choices that are allowed, best that of exact
elimination. Agents that come out with no choice are worth what the worst place of their own is. Of a death in
mid-decision the share is that of the survivors, by their own factors, in which the dead is wherever that is best.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

import swarmbo as sb
from swarmbo.coordination.by_deadline import agree_by_deadline
from swarmbo.rng import stream
from swarmbo.runs.scenario import load
from swarmbo.runs.world import make_environment
from swarmbo.transport import Event, Faults

Tables = Mapping[str, np.ndarray]
ROUND, RANDOM_CHOICES = 3, 200
DEADLINES = {"robots": 20, "field": 40}  # on the map of the sensors messages are relayed
CASES = {
    "no faults": Faults(),
    "10 % loss": Faults(loss=0.1),
    "30 %": Faults(loss=0.3),
    "50 %": Faults(loss=0.5),
    "30 %, delay up to 5": Faults(loss=0.3, delay=5),
    "50 %, delay up to 5": Faults(loss=0.5, delay=5),
}
DEATH = "30 %, one dies in mid-decision"


class Recorder:
    """A way to agree that keeps what was agreed on."""

    def __init__(self) -> None:
        self.asked: list[tuple[sb.FactorGraph, dict[str, np.ndarray], Any]] = []

    def solve(
        self, graph: sb.FactorGraph, tables: Mapping[str, Any], links: "nx.Graph[Any] | None" = None
    ) -> sb.Solution:
        """By exact elimination."""
        self.asked.append((graph, {factor: np.asarray(table) for factor, table in tables.items()}, links))
        return sb.Exact().solve(graph, tables, links)


def problem_of(world: str, seed: int) -> tuple[sb.FactorGraph, dict[str, np.ndarray], Any]:
    """What agents agree on in the last of some rounds."""
    scenario, recorder = load(world, [f"seed={seed}", f"rounds={ROUND}"]), Recorder()
    env = make_environment(scenario)
    parts = {"belief": scenario.belief, "acquisition": scenario.acquisition, "seed": seed}
    team = sb.Team.for_env(env, coordination=recorder, **parts)
    observations, infos = env.reset(seed=seed)
    for _ in range(ROUND):
        step = env.step(team.act(observations, infos))
        observations, infos = step[0], step[4]
        team.observe(*step)
    return recorder.asked[-1]


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
        (own,) = [f for f in graph.factors if graph.scope(f)[0] == x]
        chosen[x] = int(tables[own].reshape(len(tables[own]), -1).max(axis=1).argmax())
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
    names = {x: graph.variable_owner(x) for x in graph.variables if x != dead}
    return sb.FactorGraph.from_scopes(scopes, owners=owners, variable_owners=names), left


def measure(world: str, seed: int, rows: dict[str, dict[str, list[float]]]) -> None:
    """All cases of one decision."""
    graph, tables, links = problem_of(world, seed)
    best = sb.Exact().solve(graph, tables, links).value
    floor = at_random(graph, tables, stream(seed, "random choices"))
    method = sb.MaxSum(mode="asynchronous", deadline=DEADLINES[world], patience=DEADLINES[world] // 3)

    def note(case: str, summed: float, best: float, floor: float, n_bytes: float, n_idle: int) -> None:
        row = rows[case]
        row["share"].append((summed - floor) / (best - floor))
        row["kB"].append(n_bytes / 1000)
        row["idle"].append(n_idle)

    chosen, clashes = alone(graph, tables)
    note("independent", value(graph, tables, chosen), best, floor, 0.0, clashes)
    lockstep = sb.MaxSum().solve(graph, tables, links)
    note("lockstep max-sum, no faults", lockstep.value, best, floor, lockstep.report.bytes, 0)
    for case, faults in CASES.items():
        said = agree_by_deadline(method, graph, tables, faults.open(graph.agents, links, seed=seed)).said
        n_idle = len(graph.variables) - len(said.assignment)
        note(case, value(graph, tables, said.assignment), best, floor, said.report.bytes, n_idle)
    rng = stream(seed, "death")
    dead = graph.variables[int(rng.integers(len(graph.variables)))]
    step = int(rng.integers(1, DEADLINES[world]))
    faults = Faults(loss=0.3, deaths=(Event(agent=graph.variable_owner(dead), round=0, step=step),))
    said = agree_by_deadline(method, graph, tables, faults.open(graph.agents, links, seed=seed)).said
    left, of_them = without(graph, tables, dead)
    best, floor = sb.Exact().solve(left, of_them).value, at_random(left, of_them, rng)
    n_idle = len(left.variables) - len(said.assignment)
    note(DEATH, value(left, of_them, said.assignment), best, floor, said.report.bytes, n_idle)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0-19", help="first and last")
    first, last = map(int, parser.parse_args().seeds.split("-"))
    say("| | " + " | ".join(f"{w}: share | least | kB | without" for w in DEADLINES) + " |")
    say("|---|" + "--:|--:|--:|--:|" * len(DEADLINES))
    by_world: dict[str, dict[str, dict[str, list[float]]]] = {}
    for world in DEADLINES:
        rows = by_world[world] = defaultdict(lambda: defaultdict(list))
        for seed in range(first, last + 1):
            measure(world, seed, rows)
    for case in by_world["robots"]:
        cells = [
            f"{np.mean(row['share']):.3f} | {np.min(row['share']):.2f} | {np.mean(row['kB']):.0f} | "
            f"{int(np.sum(row['idle']))}"
            for row in (by_world[world][case] for world in DEADLINES)
        ]
        say(f"| {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

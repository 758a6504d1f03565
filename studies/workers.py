"""Eight workers on sums of factors, asynchronous or in batches, compared with one worker on a simulated clock.

    python studies/workers.py --problem powell-moved --mode asynchronous sequential   # runs missing cells of all seeds
    python studies/workers.py --page                                                  # rewrites the table of docs

The driver of `swarmbo run --workers` asks and tells. Durations are log-normal with mean 1 (standard deviation of the
logarithm 0.5), the same for the same query in every mode; a decision takes 0.1, a point of the initial design nothing.
A line has the times at which 90 % and 99 % of the gap are closed, or null if they never are. The gap is that between
the best of the ten initial points and the maximum.
"""

import heapq
import math
import statistics
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import INITIAL, team_of
from benchmark_problems import PROBLEMS
from study import Line, Study, markdown, select

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.evaluations import Driver, Ended, Ledger

EVALUATIONS = 90
DECISION = 0.1
SPREAD = 0.5  # of the logarithm of durations
MODES = {"sequential": (1, True), "asynchronous": (8, False), "synchronous": (8, True)}
NAMES = ("powell-moved", "powell-moved-per-factor", "wlan")


class Clocked:
    """Executor with a simulated clock: free workers start queued tasks at once, also during a decision.

    Args:
        count: Number of workers.
        seed: Seed of the durations.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.now, self.busy = 0.0, 0.0
        self._seed, self._free = seed, count
        self._queue, self._running, self._ended = deque[str](), list[tuple[float, str]](), list[Ended]()

    def submit(self, task: str, point: Any) -> None:
        """Queue a task."""
        self._queue.append(task)
        self._start()

    def poll(self, timeout: float) -> list[Ended]:
        """Ended tasks; with a timeout and none ended, advance the clock to the next end."""
        if not self._ended and timeout > 0.0 and self._running:
            self.spend(self._running[0][0] - self.now)
        ends, self._ended = self._ended, []
        return ends

    def close(self) -> None:
        """Nothing to end."""

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._running and self._running[0][0] <= until:
            self.now, task = heapq.heappop(self._running)
            self._free += 1
            self._ended.append(Ended(task, "done"))
            self._start()
        self.now = until

    def _start(self) -> None:
        while self._free and self._queue:
            task = self._queue.popleft()
            noise = stream(self._seed, "durations", query=task).standard_normal()
            length = math.exp(SPREAD * noise - SPREAD**2 / 2.0)
            heapq.heappush(self._running, (self.now + length, task))
            self._free, self.busy = self._free - 1, self.busy + length


def run(name: str, mode: str, seed: int) -> Line:
    """One line of results."""
    problem, (count, is_synchronous) = PROBLEMS[name], MODES[mode]
    function = problem.function_of(seed)
    team = team_of(problem, function, "auto", seed, EVALUATIONS)
    clock, told = Clocked(count, seed), list[tuple[float, float]]()

    def choose(team: sb.Team) -> sb.Query:
        query = team.ask()
        clock.spend(0.0 if query.mean is None else DECISION)
        return query

    def values_of(query_id: str) -> np.ndarray:
        point = ledger.query(query_id).point
        return function.factor_values(np.array([[point[v] for v in function.variables]]))[0]

    def tell(query_id: str, _: Ended) -> None:
        values = values_of(query_id)
        told.append((clock.now, float(values.sum())))
        by_factor = dict(zip(function.scopes, values.tolist(), strict=True))
        ledger.tell(query_id, by_factor if problem.per_factor else float(values.sum()))

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder), team, choose)
        Driver(ledger, clock, count, EVALUATIONS, tell, is_synchronous).run()
        begun = max(float(values_of(f"q{number:05d}").sum()) for number in range(1, INITIAL + 1))
    assert function.maximum is not None
    gap = function.maximum - begun
    line: Line = {}
    for share in (90, 99):
        wanted = function.maximum - gap * (1.0 - share / 100.0)
        line[f"to_{share}"] = next((round(when, 2) for when, value in told if value >= wanted), None)
    best = max(value for _, value in told)
    end = {"end": round(clock.now, 2), "busy": round(clock.busy / (count * clock.now), 3)}
    return line | end | {"regret": float(f"{function.maximum - best:.4g}")}


def table(lines: list[Line]) -> Iterator[str]:
    """Medians of each problem, and on how many seeds the time is at most a fifth of that of one worker."""
    rows = list[list[str]]()
    for name in dict.fromkeys(line["problem"] for line in lines):
        alone = {line["seed"]: line for line in select(lines, problem=name, mode="sequential")}
        for mode in MODES:
            own = select(lines, problem=name, mode=mode)
            if not own:
                continue
            half = statistics.median(_time(line["to_90"]) for line in own)
            cells = ["never" if half == math.inf else f"{half:.1f}"]
            # one worker may not close the gap before the last evaluation
            least = {seed: line["to_90"] or line["end"] for seed, line in alone.items()}
            fifth = [_time(line["to_90"]) <= least[line["seed"]] / 5.0 for line in own if line["seed"] in least]
            cells.append("" if mode == "sequential" else f"{sum(fifth)}/{len(fifth)}")
            cells += [f"{statistics.median(line['regret'] for line in own):.3g}"]
            rows.append([f"`{name}`", mode, *cells, str(len(own))])
    head = ["problem", "mode", "time to 90 %", "five times faster", "regret", "seeds"]
    yield from markdown(head, rows)


def _time(told: float | None) -> float:
    return math.inf if told is None else told


CHOICES = {"problem": NAMES, "mode": tuple(MODES), "seed": range(1000, 1010)}
STUDY = Study(__doc__, "workers.jsonl", run, CHOICES, table, page=("studies/sums.md", "workers"))

if __name__ == "__main__":
    STUDY.main()

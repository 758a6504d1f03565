"""Estimate of the time and memory of a run, from trials of its rounds in a separate process.

A decision is timed three times: with a few random measurements, with as many as at the end (at most 600), and with the
number halfway between. Each time, the team learns one more of each agent and decides. The processor time is
measured after all code is compiled. Simpson's rule over the three times is exact for growth up to the third power.
Beyond 600 measurements, time is taken to grow with their third power (linearly with tiles), memory with the second.
"""

import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np

from swarmbo.belief.gp.tiles import TILED_FROM
from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import error_text
from swarmbo.deciding.setup import to_plain
from swarmbo.deciding.team_state import acquisition_in_words
from swarmbo.errors import ConfigError, SwarmboError
from swarmbo.runs.callbacks import make_callbacks
from swarmbo.runs.child_processes import child_process
from swarmbo.runs.recording import record_reset
from swarmbo.runs.rounds import reset
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.world import naming_user_code

PATIENCE_S = 20.0

_FIRST_DATA, _MOST_DATA = 10, 600
_MOST_DESIGNED = 200
_START_S = 120.0  # to import everything, on a slow disk
_WAITING_RATIO = 20.0  # least wall time / processor time of a step that waits for something else
_COMPILE_S = 300.0  # to compile everything, on a busy machine


class Estimate(msgspec.Struct, frozen=True):
    """Estimated time (s) and memory (bytes at the end) of a run on an idle core; ``is_least``: time is a lower bound.

    ``methods``: belief and coordination at the end. With workers, the time includes the start of their processes;
    ``busy`` is the share of the time after the start in which they evaluate, and ``per_second`` counts evaluations.
    """

    seconds: float
    memory: float | None = None
    is_least: bool = False
    acquisition: str = ""
    methods: str = ""
    busy: float | None = None
    per_second: float = 0.0

    def text(self) -> str:
        """Text such as ``about 3 min and 0.2 GB``."""
        memory = "" if self.memory is None else f" and {self.memory / 1e9:.1f} GB"
        rate = f", {self.per_second:.2g} evaluations a second, workers busy {self.busy:.0%}" if self.busy else ""
        methods = f" ({self.methods})" if self.methods else ""
        return f"{'more than' if self.is_least else 'about'} {duration(self.seconds)}{memory}{methods}{rate}"


def estimate(scenario: Scenario, trust: bool = False) -> Estimate:
    """Estimate a run from trial rounds: at most 20 s for the reset and each decision, besides start and compilation."""
    measured, patience = dict[str, Any](), _START_S
    with child_process(scenario, "$.environment.id", _try_in_child, scenario, trust) as (receiving, process):
        try:
            while not measured.keys() & {"is_last", "error"} and receiving.poll(patience):
                measured |= receiving.recv()
                patience = _COMPILE_S if "methods" in measured and "step_s" not in measured else PATIENCE_S
        except EOFError:
            process.join()
            raise _too_large(f"its process was ended, with status {process.exitcode}") from None
    if isinstance(error := measured.pop("error", None), SwarmboError):
        raise error
    if error is not None:
        raise _too_large(str(error)) if measured["is_memory"] else ConfigError(f"a round ends with {error}")
    if "times" not in measured:  # the reset, or the first decision, takes longer
        least = scenario.rounds * PATIENCE_S / 4.0 if measured else PATIENCE_S
        known = {name: measured.get(name, "") for name in ("acquisition", "methods")}
        return Estimate(least, is_least=True, **known)
    return _extrapolate(scenario, measured)


def duration(seconds: float) -> str:
    """Duration in the largest suitable unit: ``3 min``, ``2 days``."""
    for unit, length in (("years", 3.156e7), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"


def _extrapolate(scenario: Scenario, measured: dict[str, Any]) -> Estimate:
    n_end, times = measured["end"], dict[int, float](measured["times"])
    n_tried, late_s = min(n_end, max(times)), times[max(times)]
    mean_s = late_s if len(times) < 3 else float(np.dot((1.0, 4.0, 1.0), [*times.values()])) / 6.0
    n_untiled = max(min(n_end, TILED_FROM), n_tried) if measured["is_field"] else n_end
    grown = (n_untiled**4 - n_tried**4) / (4.0 * n_tried**3) + (n_end**2 - n_untiled**2) / (2.0 * n_tried)
    decisions_s = scenario.rounds * (n_tried * mean_s + grown * late_s) / n_end
    memory = measured["memory"]
    if memory is not None:
        memory += 4.0 * 8.0 * (n_untiled**2 - n_tried**2)
        if (available := _total_memory()) is not None and memory > available:
            needed = f"about {memory / 1e9:,.0f} GB for {n_end:,} measurements"
            raise _too_large(f"{needed}; this machine has {available / 1e9:.0f} GB")
    texts = {name: measured[name] for name in ("acquisition", "methods")}
    sequential = Estimate(scenario.rounds * measured["step_s"] + decisions_s, memory, **texts)
    return sequential if scenario.workers is None else _with_workers(sequential, scenario, measured, decisions_s)


def _with_workers(sequential: Estimate, scenario: Scenario, measured: dict[str, Any], decisions_s: float) -> Estimate:
    workers, start_s, memory = scenario.workers, measured["start_s"], sequential.memory
    assert workers is not None
    count = n_parallel = workers.count
    if workers.engine == "pool":  # processes of this machine, whose cores they share
        n_cores = min(count, os.cpu_count() or 1)
        start_s, n_parallel = start_s * count / n_cores, count if measured["waits"] else n_cores
        memory = None if memory is None else memory + count * measured["worker_memory"]
    evaluation_s, decision_s = measured["step_s"] / n_parallel, decisions_s / scenario.rounds
    # decisions are sequential: during evaluations, or (synchronous) between batches of them
    round_s = evaluation_s + decision_s if workers.mode == "synchronous" else max(evaluation_s, decision_s)
    seconds = start_s + scenario.rounds * round_s
    busy = min(1.0, evaluation_s / round_s) if round_s else 0.0
    rate = scenario.rounds / seconds if seconds else 0.0
    return msgspec.structs.replace(sequential, seconds=seconds, memory=memory, busy=busy, per_second=rate)


def _too_large(reason: str) -> ConfigError:
    got = f"a late round needs more memory than is available ({reason})"
    return ConfigError(f"{got}; wanted fewer rounds, agents or candidates")


def _total_memory() -> float | None:
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= getattr(os, "sysconf_names", {}).keys():
        return None
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")


def _try_in_child(sending: Connection, scenario: Scenario, trust: bool) -> None:
    sending.send({})
    try:
        _limit_memory()
        with naming_user_code(scenario):
            _measure(scenario, sending, trust)
    except SwarmboError as error:
        sending.send({"error": error})
    except (Exception, SystemExit) as error:  # noqa: BLE001  reported in the calling process
        sending.send({"error": error_text(error), "is_memory": isinstance(error, MemoryError)})


def _measure(scenario: Scenario, sending: Connection, trust: bool) -> None:
    """Send each measured quantity of a run as soon as it is known."""
    env, team = assemble(scenario, trust)
    make_callbacks(scenario.callbacks or ())
    observations, infos = reset(env, scenario.seed)
    is_field = team.problem.is_field
    per_round = len(team.agents) if is_field else 1
    n_end = scenario.rounds * per_round
    tiles = " by tiles" if is_field and n_end > TILED_FROM else ""
    belief, coordination = (to_plain(part)["kind"] for part in (team.setup.belief, team.setup.coordination))
    methods = f"belief {belief}{tiles}, coordination {coordination}"
    start = {"start_s": time.process_time(), "worker_memory": _peak_memory() or 0.0}
    sending.send({"acquisition": acquisition_in_words(team.setup), "methods": methods, **start})
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    team.begin(infos)

    actions, times, n_last = dict[str, Any](), dict[int, float](), min(n_end, _MOST_DATA)
    n_first, n_data = _FIRST_DATA + 2 * per_round, _FIRST_DATA

    def decision_s(n: int) -> float:
        """Processor time (s) to learn the last round of n measurements and decide, after the decision before."""
        nonlocal n_data
        started = 0.0
        for count in (n - per_round, n):
            started = time.process_time()
            _attach_random_data(team, n_data, count)
            n_data = count
            team.refit()
            actions.update(team.act(observations, infos))
            record_reset(team, infos, truth)
        return time.process_time() - started

    _attach_random_data(team, 0, n_data)
    if not is_field:  # the initial design is over first; a method without a belief is asked ``_MOST_DESIGNED`` times
        asked = [team.ask()]
        while len(asked) < _MOST_DESIGNED and asked[-1].mean is None:
            asked.append(team.ask())
        for query in asked:
            team.give_up(query)
    decision_s(n_first)  # compiles all code
    sending.send({"step_s": PATIENCE_S})
    started, computed_s = time.perf_counter(), time.process_time()
    env.step(actions)
    step_s, computed_s = time.perf_counter() - started, time.process_time() - computed_s
    waits = computed_s * _WAITING_RATIO <= step_s  # then it takes wall time, else processor time
    step = {"step_s": step_s if waits else computed_s, "waits": waits, "end": n_end, "is_field": is_field}
    for n in (n_first + 2 * per_round, (n_first + n_last) // 2, n_last):
        if not times or n >= n_data + 2 * per_round:
            times[n] = decision_s(n)
            sending.send(step | {"times": times, "memory": _peak_memory()})
    sending.send({"is_last": True})


def _attach_random_data(team: Any, first: int, end: int) -> None:
    """Add noisy measurements of a smooth function at random points, with values of the variables' types."""
    if first >= end:
        return
    rng, is_field = stream(0, "trial", first=first), team.problem.is_field
    U = rng.random((end - first, team.domain.n_dims))
    outcomes = (np.sin(3.0 * U) + 0.1 * rng.standard_normal(U.shape)).mean(axis=1)
    if team.outcomes == "per-factor" and not is_field:
        outcomes = np.repeat(outcomes[:, None], len(team.graph.factors), axis=1)
    X = team.domain.from_unit(U)
    agents = [team.agents[i % len(team.agents)] for i in range(first, end)] if is_field else None
    points = [list(team.problem.named(x).values()) for x in X] if team.problem.is_mixed else X
    team.attach(points, outcomes, agents=agents)


def _limit_memory() -> None:
    """Make this process fail if it needs more memory than the machine has; macOS refuses such limits."""
    if sys.platform == "linux" and (available := _total_memory()) is not None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = int(available) if hard == resource.RLIM_INFINITY else min(int(available), hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _peak_memory() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)

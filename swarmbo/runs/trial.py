"""Estimate of the time and memory of a run, from trials of its rounds in a separate process.

The team gets a few random measurements, half of those at the end, and as many as at the end, up to 600. Each time it
learns one more of each agent and decides, which is measured in processor time, after all code is compiled. Simpson's
rule over the three is right for growth up to the third power. Beyond 600 measurements time grows with the third power
of their number, or in proportion to it where a field is by tiles, and memory with the second.
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
from swarmbo.runs.attended import spawned
from swarmbo.runs.recording import record_reset
from swarmbo.runs.rounds import reset
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.world import told_by_name

PATIENCE_S = 20.0

_FEW_DATA, _MOST_DATA = 10, 600
_MOST_DESIGNED = 200
_START_S = 120.0  # to import everything, on a slow disk
_WAITS = 20.0  # times its processor time, from which on a step is said to wait, and not to be kept waiting
_COMPILE_S = 300.0  # to compile everything, on a busy machine


class Estimate(msgspec.Struct, frozen=True):
    """Estimated time (s) and memory (bytes at the end) of a run on an idle core; ``is_least`` if the trial was stopped.

    ``way``: belief and coordination method at the end. With workers the time includes the start of their processes;
    there are also the share of time in which they are ``busy`` after that, and the evaluations ``per_second``.
    """

    seconds: float
    memory: float | None = None
    is_least: bool = False
    acquisition: str = ""
    way: str = ""
    busy: float | None = None
    per_second: float = 0.0

    def text(self) -> str:
        """Text such as ``about 3 min and 0.2 GB``."""
        memory = "" if self.memory is None else f" and {self.memory / 1e9:.1f} GB"
        rate = f", {self.per_second:.2g} evaluations a second, workers busy {self.busy:.0%}" if self.busy else ""
        way = f" ({self.way})" if self.way else ""
        return f"{'more than' if self.is_least else 'about'} {duration(self.seconds)}{memory}{way}{rate}"


def estimate(scenario: Scenario, trust: bool = False) -> Estimate:
    """Try rounds of a run: for at most 20 s each for the reset and a number of measurements, besides starts."""
    measured, patience = dict[str, Any](), _START_S
    with spawned(scenario, "$.environment.id", _try, scenario, trust) as (receiving, process):
        try:
            while not measured.keys() & {"is_last", "error"} and receiving.poll(patience):
                measured |= receiving.recv()
                patience = _COMPILE_S if "way" in measured and "step_s" not in measured else PATIENCE_S
        except EOFError:
            process.join()
            raise _too_large(f"its process was ended, with status {process.exitcode}") from None
    if isinstance(error := measured.pop("error", None), SwarmboError):
        raise error
    if error is not None:
        raise _too_large(str(error)) if measured["is_memory"] else ConfigError(f"a round ends with {error}")
    if "times" not in measured:  # the reset, or the first decision, takes longer
        least = scenario.rounds * PATIENCE_S / 4.0 if measured else PATIENCE_S
        return Estimate(least, is_least=True, acquisition=measured.get("acquisition", ""), way=measured.get("way", ""))
    return _extrapolated(scenario, measured)


def duration(seconds: float) -> str:
    """Duration in the largest suitable unit: ``3 min``, ``2 days``."""
    for unit, length in (("years", 3.156e7), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"


def _extrapolated(scenario: Scenario, measured: dict[str, Any]) -> Estimate:
    end, times = measured["end"], dict[int, float](measured["times"])
    tried, late_s = min(end, max(times)), times[max(times)]
    mean_s = late_s if len(times) < 3 else float(np.dot((1.0, 4.0, 1.0), [*times.values()])) / 6.0
    tiled = max(min(end, TILED_FROM), tried) if measured["is_field"] else end
    grown = (tiled**4 - tried**4) / (4.0 * tried**3) + (end**2 - tiled**2) / (2.0 * tried)
    decisions = scenario.rounds * (tried * mean_s + grown * late_s) / end
    memory = measured["memory"]
    if memory is not None:
        memory += 4.0 * 8.0 * (tiled**2 - tried**2)
        if (there := _memory()) is not None and memory > there:
            needed = f"about {memory / 1e9:,.0f} GB for {end:,} measurements"
            raise _too_large(f"{needed}; this machine has {there / 1e9:.0f} GB")
    step, known = measured["step_s"], {name: measured[name] for name in ("acquisition", "way")}
    if (workers := scenario.workers) is None:
        return Estimate(scenario.rounds * step + decisions, memory, **known)
    count, decision, start = workers.count, decisions / scenario.rounds, measured["start_s"]
    at_once = count
    if workers.engine == "pool":  # processes of this machine, whose cores they share
        cores = min(count, os.cpu_count() or 1)
        start, at_once = start * count / cores, count if measured["waits"] else cores
        memory = None if memory is None else memory + count * measured["worker_memory"]
    parts = step / at_once, decision
    # decisions are made one after the other, beside evaluations or between batches of them
    each = sum(parts) if workers.mode == "synchronous" else max(parts)
    seconds, busy = start + scenario.rounds * each, min(1.0, parts[0] / each) if each else 0.0
    return Estimate(seconds, memory, **known, busy=busy, per_second=scenario.rounds / seconds if seconds else 0.0)


def _too_large(why: str) -> ConfigError:
    got = f"a late round needs more memory than is available ({why})"
    return ConfigError(f"{got}; wanted fewer rounds, agents or candidates")


def _memory() -> float | None:
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= names.keys():
        return None
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")


def _try(sending: Connection, scenario: Scenario, trust: bool) -> None:
    sending.send({})
    try:
        _bound_memory()
        with told_by_name(scenario):
            _measure(scenario, sending, trust)
    except SwarmboError as error:
        sending.send({"error": error})
    except (Exception, SystemExit) as error:  # noqa: BLE001  reported in the calling process
        sending.send({"error": error_text(error), "is_memory": isinstance(error, MemoryError)})


def _measure(scenario: Scenario, sending: Connection, trust: bool) -> None:
    """Send what is known of a run as soon as it is."""
    env, team = assemble(scenario, trust)
    observations, infos = reset(env, scenario.seed)
    is_field, more = team.problem.is_field, len(team.agents) if team.problem.is_field else 1
    end = scenario.rounds * more
    tiles = " by tiles" if is_field and end > TILED_FROM else ""
    belief, coordination = (to_plain(part)["kind"] for part in (team.setup.belief, team.setup.coordination))
    way = f"belief {belief}{tiles}, coordination {coordination}"
    started = {"start_s": time.process_time(), "worker_memory": _peak() or 0.0}
    sending.send({"acquisition": acquisition_in_words(team.setup), "way": way, **started})
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    team.begin(infos)

    actions, times, given, tried = dict[str, Any](), dict[int, float](), [0], min(end, _MOST_DATA)

    def late(n: int) -> float:
        """Processor time to learn the last of n measurements and to decide, after a decision without them."""
        began = 0.0
        for count in (n - more, n):
            began = time.process_time()
            _give_data(team, given[-1], count)
            given.append(count)
            team.refit()
            actions.update(team.act(observations, infos))
            record_reset(team, infos, truth)
        return time.process_time() - began

    few = _FEW_DATA + 2 * more
    _give_data(team, 0, few - 2 * more)
    if not is_field:
        _pass_design(team)
    given.append(few - 2 * more)
    late(few)  # compiles
    sending.send({"step_s": PATIENCE_S})
    began, computed = time.perf_counter(), time.process_time()
    env.step(actions)
    step_s, computed = time.perf_counter() - began, time.process_time() - computed
    waits = computed * _WAITS <= step_s
    told = {"step_s": step_s if waits else computed, "waits": waits, "end": end, "is_field": is_field}
    for n in (few + 2 * more, (few + tried) // 2, tried):
        if not times or n >= given[-1] + 2 * more:
            times[n] = late(n)
            sending.send(told | {"times": times, "memory": _peak()})
    sending.send({"is_last": True})


def _pass_design(team: Any) -> None:
    """Ask until the initial design is over; of a method without a belief, up to a limit."""
    asked = [team.ask()]
    while len(asked) < _MOST_DESIGNED and asked[-1].mean is None:
        asked.append(team.ask())
    for query in asked:
        team.give_up(query)


def _give_data(team: Any, first: int, end: int) -> None:
    """Add measurements of a smooth function with some noise at random places, in values of its types."""
    if first >= end:
        return
    rng, is_field = stream(0, "trial", first=first), team.problem.is_field
    U = rng.random((end - first, team.domain.n_dims))
    parts = np.sin(3.0 * U) + 0.1 * rng.standard_normal(U.shape)
    outcomes = parts.mean(axis=1)
    if team.outcomes == "per-factor" and not is_field:
        outcomes = np.repeat(outcomes[:, None], len(team.graph.factors), axis=1)
    X = team.domain.from_unit(U)
    agents = [team.agents[i % len(team.agents)] for i in range(first, end)] if is_field else None
    points = [list(team.problem.named(x).values()) for x in X] if team.problem.is_mixed else X
    team.attach(points, outcomes, agents=agents)


def _bound_memory() -> None:
    """Make this process fail if it needs more memory than the machine has; macOS refuses such limits."""
    if sys.platform == "linux" and (there := _memory()) is not None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = int(there) if hard == resource.RLIM_INFINITY else min(int(there), hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _peak() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)

"""Estimate of the time and memory of a run, from a trial of one of its last rounds in a separate process.

The team gets as many random measurements as at the end, up to 600, and runs one round. Beyond that time grows with the
third power of the data and memory with the second: a rough estimate.
"""

import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import error_text
from swarmbo.deciding.team_state import acquisition_in_words
from swarmbo.errors import ConfigError, SwarmboError
from swarmbo.runs.attended import spawned
from swarmbo.runs.recording import record_reset
from swarmbo.runs.rounds import reset
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.world import told_by_name
from swarmbo.team import Team

PATIENCE_S = 20.0

_MOST_DATA = 600
_MOST_DESIGNED = 200
_START_S = 120.0  # to import everything, on a slow disk


class Estimate(msgspec.Struct, frozen=True):
    """Estimated time (s) and memory (bytes at the end) of a run on this machine; ``is_least`` if the trial was stopped.

    With workers also the share of time in which they are ``busy``, and the evaluations ``per_second``.
    """

    seconds: float
    memory: float | None = None
    is_least: bool = False
    acquisition: str = ""
    busy: float | None = None
    per_second: float = 0.0

    def text(self) -> str:
        """Text such as ``about 3 min and 0.2 GB``."""
        memory = "" if self.memory is None else f" and {self.memory / 1e9:.1f} GB"
        rate = f", {self.per_second:.2g} evaluations a second, workers busy {self.busy:.0%}" if self.busy else ""
        return f"{'more than' if self.is_least else 'about'} {duration(self.seconds)}{memory}{rate}"


def estimate(scenario: Scenario, trust: bool = False) -> Estimate:
    """Try one of the last rounds of a run, for at most 20 s each for reset and round, and the start of a process."""
    with spawned(scenario, "$.environment.id", _try, scenario, trust) as (receiving, process):
        try:
            if not (receiving.poll(_START_S) and receiving.recv() and receiving.poll(PATIENCE_S)):
                return Estimate(PATIENCE_S, is_least=True)  # its reset alone takes longer
            measured: dict[str, Any] = receiving.recv()
            if "is_reset" in measured:
                if not receiving.poll(PATIENCE_S):
                    known = measured["acquisition"]
                    return Estimate(scenario.rounds * PATIENCE_S / 4.0, is_least=True, acquisition=known)
                measured = receiving.recv()
        except EOFError:
            process.join()
            raise _too_large(f"its process was ended, with status {process.exitcode}") from None
    if isinstance(error := measured.get("error"), SwarmboError):
        raise error
    if error is not None:
        raise _too_large(str(error)) if measured["is_memory"] else ConfigError(f"a round ends with {error}")
    return _extrapolated(scenario, measured)


def duration(seconds: float) -> str:
    """Duration in the largest suitable unit: ``3 min``, ``2 days``."""
    for unit, length in (("years", 3.156e7), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _extrapolated(scenario: Scenario, measured: dict[str, Any]) -> Estimate:
    growth = measured["end"] / measured["tried"]
    # the mean of a third power over a run is a quarter of its end
    decisions = scenario.rounds * measured["decision_s"] * (growth**3 / 4.0 if growth > 1.0 else 0.5)
    memory = measured["memory"]
    if memory is not None:
        memory += 4.0 * 8.0 * (measured["end"] ** 2 - measured["tried"] ** 2)
        if (there := _memory()) is not None and memory > there:
            needed = f"about {memory / 1e9:,.0f} GB for {measured['end']:,} measurements"
            raise _too_large(f"{needed}; {there / 1e9:.0f} GB are free")
    step, chosen = measured["step_s"], measured["acquisition"]
    if scenario.workers is None:
        return Estimate(scenario.rounds * step + decisions, memory, acquisition=chosen)
    count, decision = scenario.workers.count, decisions / scenario.rounds
    # decisions are made one after the other, beside evaluations or between batches of them
    each = max(step / count, decision)
    if scenario.workers.mode == "synchronous":
        each = step / count + decision
    seconds, busy = scenario.rounds * each, min(1.0, step / count / each) if each else 0.0
    return Estimate(seconds, memory, acquisition=chosen, busy=busy, per_second=1.0 / each if each else 0.0)


def _too_large(why: str) -> ConfigError:
    got = f"a late round needs more memory than is available ({why})"
    return ConfigError(f"{got}; wanted fewer rounds, agents or candidates")


def _memory() -> float | None:
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= names.keys():
        return None
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")


def _try(sending: Connection, scenario: Scenario, trust: bool) -> None:
    sending.send(True)
    try:
        _bound_memory()
        with threadpool_limits(1, user_api="blas"), told_by_name(scenario):
            measured = _measured(scenario, sending, trust)
    except SwarmboError as error:
        measured = {"error": error}
    except (Exception, SystemExit) as error:  # noqa: BLE001  reported in the calling process
        measured = {"error": error_text(error), "is_memory": isinstance(error, MemoryError)}
    sending.send(measured)


def _measured(scenario: Scenario, sending: Connection, trust: bool) -> dict[str, Any]:
    env, team = assemble(scenario, trust)
    observations, infos = reset(env, scenario.seed)
    sending.send({"is_reset": True, "acquisition": (acquisition := acquisition_in_words(team.setup))})
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    team.begin(infos)
    end = scenario.rounds * (len(team.agents) if team.problem.is_field else 1)
    tried = min(end, _MOST_DATA)
    _give_data(team, tried)
    began = time.perf_counter()
    team.refit()
    if not team.problem.is_field:
        _ask_until_designed(team)
    actions = team.act(observations, infos)
    record_reset(team, infos, truth)
    decided = time.perf_counter()
    env.step(actions)
    step_s = time.perf_counter() - decided
    times = {"decision_s": decided - began, "step_s": step_s, "tried": tried, "end": end}
    return {**times, "memory": _peak(), "acquisition": acquisition}


def _ask_until_designed(team: Team) -> None:
    """Ask until the initial design is over; of a method without a belief, up to a limit."""
    for _ in range(_MOST_DESIGNED):
        if team.ask().mean is not None:
            return


def _give_data(team: Team, count: int) -> None:
    """Add measurements of a smooth function with some noise at random places, in values of its types."""
    rng = stream(0, "trial")
    U = rng.random((count, team.domain.n_dims))
    parts = np.sin(3.0 * U) + 0.1 * rng.standard_normal(U.shape)
    outcomes = parts.mean(axis=1)
    if team.outcomes == "per-factor" and not team.problem.is_field:
        outcomes = np.repeat(outcomes[:, None], len(team.graph.factors), axis=1)
    X = team.domain.from_unit(U)
    team.attach([list(team.problem.named(x).values()) for x in X] if team.problem.is_mixed else X, outcomes)


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

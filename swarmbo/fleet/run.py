"""Run of a scenario with one process for each agent, on any machine; the environment and the log are here."""

import math
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.agent.schema import require_agent_settings
from swarmbo.boundary.files import PARTIALS
from swarmbo.boundary.processes import one_blas_thread
from swarmbo.boundary.values import known_names
from swarmbo.errors import ConfigError, RunFolderError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.link import Link
from swarmbo.fleet.measuring import Instrument, InstrumentWrapper, require_consistent, require_measurable
from swarmbo.fleet.member import Member
from swarmbo.fleet.plan import HUB, Plan, Protocol, endpoints_of, new_run
from swarmbo.fleet.team import FleetTeam, level_and_sites
from swarmbo.records import NetworkRecord, RoundRecord
from swarmbo.registry import name_of
from swarmbo.routing import Routes
from swarmbo.runs import RunFolder, Scenario, Summary
from swarmbo.runs.progress import run_hooks
from swarmbo.runs.rounds import Hooks, OnRound, RunParts, ignore, run_rounds
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import make_environment, require_practical_numbers
from swarmbo.runs.states import read_checkpoint
from swarmbo.runs.stored_files import ELSEWHERE, NETWORK, locked
from swarmbo.runs.world import Environment, user_code_names

_MOST_RESTARTS = 3  # of a process, before the run or the agent is given up
_EXIT_TIMEOUT_S = 5.0  # for processes to end
FOLDER = "fleet"  # within the folder of a run
PLAN = "fleet.json"
SOLUTION = "solution.json"  # of a problem in tables
OnBegin = Callable[[Sequence[str], Path], object]  # agents elsewhere, and the path of the plan that starts them


class Processes:
    """Processes of members, which end with this one. A repeated failure ends the run, or its reason is in ``ended``."""

    def __init__(self, plans: Mapping[str, Path], *, tolerates_failures: bool = False) -> None:
        self._plans, self._tolerates_failures = plans, tolerates_failures
        self.restarts, self.ended = Counter[str](), dict[str, str]()
        self.by_name = {name: self._start(name) for name in plans}

    def restart_failed(self) -> None:
        """Restart failed processes."""
        for name, process in self.by_name.items():
            if name in self.ended or process.poll() is None:
                continue
            if self.restarts[name] == _MOST_RESTARTS:
                got = f"the process of {name!r} has ended {_MOST_RESTARTS + 1} times, at last with {process.returncode}"
                output = self._log(name).read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
                reason = f"{got}: {output[-1]}; {self._log(name)} has all of its output"
                if not self._tolerates_failures:
                    raise TransportError(reason)
                self.ended[name] = reason
                continue
            self.restarts[name] += 1
            self.by_name[name] = self._start(name)

    def close(self) -> None:
        """End all processes."""
        for process in self.by_name.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self.by_name.values():
            try:
                process.wait(_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "swarmbo", "agent", name, "--fleet", str(self._plans[name]), "--attached"]
        with self._log(name).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def _log(self, name: str) -> Path:
        return self._plans[name].with_name(f"{name}.log")


class NetworkReport(msgspec.Struct, frozen=True):
    """Counts over a fleet's members; ``inadmissible`` are undamaged messages among the ``refused``, by sender."""

    restarts: dict[str, int] = {}
    repeated: int = 0
    refused: int = 0
    inadmissible: dict[str, int] = {}
    absent: tuple[str, ...] = ()
    missed: dict[str, int] = {}

    @classmethod
    def of(cls, hub: Hub, processes: Processes, missed: Mapping[str, int]) -> "NetworkReport":
        """Counts so far."""
        hub.add_own_counts()
        by_sender = dict(hub.inadmissible_by_sender)
        return cls(dict(processes.restarts), hub.repeated, hub.refused, by_sender, hub.absent, dict(missed))

    def since(self, before: "NetworkReport", round_number: int) -> NetworkRecord:
        """Counts since an earlier report."""
        restarts = dict(Counter(self.restarts) - Counter(before.restarts))
        repeated, refused = self.repeated - before.repeated, self.refused - before.refused
        return NetworkRecord(round_number, restarts, repeated, refused, self.absent)


class Network(msgspec.Struct, frozen=True):
    """Network settings of a fleet; ``tls`` and ``quic`` need keys, ``tcp`` is for one machine.

    Agents listen on the ports after the hub's; hosts are 127.0.0.1 unless given. Agents ``elsewhere`` are started with
    ``swarmbo agent``; so are those in ``measures``, with an instrument of their own. ``patience_s`` is the longest wait
    for one another, ``tick_s`` the length of a tick of an agreement by a deadline.
    """

    protocol: Protocol = "tcp"
    port: int = 7447
    hosts: Mapping[str, str] = {}
    keys: Path | None = None
    elsewhere: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    patience_s: float = 60.0
    tick_s: float = 0.05

    def local(self, agents: Sequence[str]) -> list[str]:
        """Agents with processes on this machine."""
        for at, named in (("--elsewhere", self.elsewhere), ("--measures", self.measures)):
            if strangers := sorted(set(named) - set(agents)):
                raise ConfigError(f"got {strangers[0]!r}; wanted one of {list(agents)}", at=at)
        return [agent for agent in agents if agent not in (*self.elsewhere, *self.measures)]

    def plan(self, agents: Sequence[str], name: str, seed: int, **more: Any) -> Plan:
        """Plan of a new run over this network."""
        for at, seconds in (("--patience", self.patience_s), ("--tick", self.tick_s)):
            if not 0.0 < seconds < math.inf:
                raise ConfigError(f"got {seconds}; wanted seconds > 0", at=at)
        keys = None if self.keys is None else str(self.keys.absolute())
        more |= {"measures": self.measures, "patience_s": self.patience_s, "tick_s": self.tick_s, "keys": keys}
        return Plan(new_run(name, seed), endpoints_of(agents, self.protocol, self.port, self.hosts), **more).checked()


def run_fleet(
    scenario: Scenario, out: Path, network: Network, on_round: OnRound = ignore, on_begin: OnBegin = ignore
) -> tuple[Summary, NetworkReport]:
    """Run a scenario with a process for each agent. ``out`` is the folder of a run, with ``fleet`` in it.

    ``on_begin`` is called with the agents elsewhere and the path of the plan, once they may be started.

    Agents' decisions are bit-identical to those of ``swarmbo run``; with a deadline, they depend on arrivals. A
    TransportError ends the run if an agent is silent for too long, or its process fails repeatedly.
    """
    env, team = _assembled(scenario)
    local = network.local(team.agents)
    for agent in network.measures:
        require_measurable(team.problem, agent)
    world = InstrumentWrapper(env, network.measures) if network.measures else env
    level, sites = level_and_sites(team.world)
    content = {"problem": team.problem.to_plain(), "settings": team.setup.to_plain(), "level": level, "sites": sites}
    plan, plan_path = network.plan(team.agents, scenario.name, scenario.seed, **content), out / FOLDER / PLAN
    with new_folder(out, scenario):
        folder = RunFolder.create(out, scenario)
        with running_fleet(plan, plan_path, local) as (hub, processes):
            on_begin([agent for agent in team.agents if agent not in local], plan_path)
            team.hub = hub
            if isinstance(world, InstrumentWrapper):
                folder.write_json(ELSEWHERE, {"agents": network.measures})
                world.hub = hub
            with run_hooks(scenario, out, on_round) as calls:
                log = _NetworkLog(out / NETWORK, hub, processes, calls.on_round)
                summary = run_rounds(RunParts(scenario, folder, world, team, Hooks(log.on_round)))
            hub.end()
        return summary, log.report()


def resume_fleet(out: Path, on_begin: OnBegin = ignore, *, progress: bool = False) -> Summary:
    """Resume a fleet's run with all decisions in this process; agents that measure elsewhere still measure there."""
    with one_blas_thread(), locked(out):
        folder, plan_path = RunFolder.open(out), out / FOLDER / PLAN
        scenario, plan = folder.scenario(), Plan.read(plan_path)
        plan = msgspec.structs.replace(plan, run=new_run(scenario.name, scenario.seed))
        env, team = assemble(scenario)
        world = InstrumentWrapper(env, plan.measures, is_new_run=read_checkpoint(folder) is None)
        local_agents = [agent for agent in team.agents if agent not in plan.measures]
        with closing(Link(HUB, plan)) as link, run_hooks(scenario, out, ignore, progress=progress) as calls:
            plan.write(plan_path)
            on_begin(plan.measures, plan_path)
            world.hub = hub = Hub(plan, link, local=local_agents)
            for agent in local_agents:
                hub.membership.mark_failed(agent, "this process decides for it")
            summary = run_rounds(RunParts(scenario, folder, world, team, calls))
            hub.end()
            return summary


@contextmanager
def new_folder(out: Path, scenario: Scenario | None = None) -> Generator[None]:
    """Hold the lock of a folder without a run, or with this run before it began; linear algebra has one thread."""
    # plans and processes' logs of a fleet that was killed before it logged or solved anything
    leftover = {FOLDER, *(SOLUTION + end for end in PARTIALS)} if (out / FOLDER).is_dir() else ()
    with one_blas_thread(), locked(RunFolder.make(out, leftover)):
        if RunFolder.holds_run(out):
            present = RunFolder.open(out)
            if (is_other := present.scenario() != scenario) or present.has_begun:
                which = "another" if is_other and scenario is not None else "a"
                raise RunFolderError(f"{out}: holds {which} run; choose another --out, or {present.resume_hint}")
            present.clear()
        yield


@contextmanager
def running_fleet(plan: Plan, path: Path, local: Sequence[str]) -> Generator[tuple[Hub, Processes]]:
    """Write a fleet's plan to ``path``, or with tables one per agent next to it. Run hub and processes in the block."""
    with closing(Link(HUB, plan)) as link:
        path.parent.mkdir(exist_ok=True)
        if plan.tables is None:
            paths = dict.fromkeys(local, path)
            plan.write(path)
        else:
            paths = {agent: path.with_name(f"{agent}.json") for agent in local}
            for agent in plan.endpoints.keys() - {HUB}:
                plan.for_agent(agent).write(path.with_name(f"{agent}.json"))
        with closing(Processes(paths, tolerates_failures=plan.tolerates_failures)) as processes:
            yield Hub(plan, link, processes.restart_failed, local=local, ended=processes.ended), processes


class _NetworkLog:
    """Log of a run's network, one line for each round, written before the round is passed on."""

    def __init__(self, path: Path, hub: Hub, processes: Processes, on_round: OnRound) -> None:
        self._path, self._hub, self._processes, self._on_round = path, hub, processes, on_round
        self._before, self._missed = NetworkReport(), Counter[str]()

    def on_round(self, record: RoundRecord, was_logged: bool) -> None:
        self._missed.update(self._hub.absent)
        now = self.report()
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(now.since(self._before, record.round)) + b"\n")
        self._before = now
        self._on_round(record, was_logged)

    def report(self) -> NetworkReport:
        return NetworkReport.of(self._hub, self._processes, self._missed)


def members_of(scenario: Scenario) -> list[str]:
    """Names of the hub and the agents of a scenario."""
    return [HUB, *_assembled(scenario)[1].agents]


def _assembled(scenario: Scenario) -> tuple[Environment, FleetTeam]:
    if user_code := user_code_names(msgspec.structs.asdict(scenario)):
        raise ConfigError(f"got {next(iter(user_code.values()))!r}; wanted kinds of swarmbo, which every machine has")
    for setting, reason in {"workers": "evaluates one point at a time", "step_timeout_s": "waits for any step"}.items():
        if getattr(scenario, setting) is not None:
            raise ConfigError(f"got {setting}; wanted none, as a fleet {reason}", at=f"$.{setting}")
    require_practical_numbers(scenario)
    env = make_environment(scenario, False)
    team = FleetTeam.for_env(env, **scenario.team_settings)
    if isinstance(team.setup.coordination, Routes):
        got = f"got {name_of(team.setup.coordination)!r}, whose routes need the paths of the coordinator's environment"
        raise ConfigError(f"{got}; wanted a kind that chooses locations, such as 'max-sum'", at="$.coordination.kind")
    require_agent_settings(team.setup)
    return env, team


def run_member(
    name: str, path: Path, *, attached: bool = False, keys: Path | None = None, measure: Instrument | None = None
) -> None:
    """Run one agent of a fleet until the run ends; if the hub is restarted before that, the agent joins the new run.

    Its journal is next to the plan, in a folder for each agent and run. If ``attached``, it ends when standard input
    does. ``keys`` is the folder of keys on this machine, if not as in the plan; ``measure`` is its own instrument.
    """
    plan: Plan | None = Plan.read(path)
    known_names([name], sorted({*plan.endpoints} - {HUB}), "NAME")
    if keys is not None:
        plan = msgspec.structs.replace(plan, keys=str(keys))
    require_consistent(measure, name, plan.measures)
    ended = threading.Event()
    if attached:
        threading.Thread(target=_await_end_of_input, args=(ended,), daemon=True).start()
    folder = path.parent / name
    folder.mkdir(exist_ok=True)
    with locked(folder), one_blas_thread():
        (folder / "pid").write_text(f"{os.getpid()}\n")
        while plan is not None:
            with closing(Link(name, plan)) as link:
                member = Member(name, plan, link, folder / plan.run, measure=measure)
                member.run(ended.is_set)
                plan = member.next_plan


def _await_end_of_input(ended: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    ended.set()

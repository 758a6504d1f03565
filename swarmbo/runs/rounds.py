"""The loop: reset, then act, step and observe; every round is logged before the next one begins.

A round whose step raises or hangs is recorded with all measurements failed, and the world is set back.
"""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from swarmbo import metrics
from swarmbo.boundary.values import error_text, short
from swarmbo.deciding.team_state import acquisition_in_words, warn_of_aim
from swarmbo.errors import ConfigError, RunFolderError, TransportError
from swarmbo.evaluations.ledger import Event
from swarmbo.records import GroundTruth, Labels, RoundRecord
from swarmbo.runs import states
from swarmbo.runs.folder import RunFolder, versions
from swarmbo.runs.recording import find_references, record_reset, record_round, summarise
from swarmbo.runs.report import Summary, WorkersReport
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.states import State
from swarmbo.runs.stored_files import ELSEWHERE, Timing
from swarmbo.runs.world import Environment
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, FunctionWorld, Step

OnRound = Callable[[RoundRecord, bool], None]  # the round, and True if it was logged before
Watch = Callable[[Event], None]  # each event of a run with workers
Heartbeat = Callable[[int | None], None]  # the round whose step begins, 0 for the reset; None when it has ended


def ignore(*_: object) -> None:
    """Default of calls: do nothing."""


@dataclass(frozen=True)
class Calls:
    """Calls of a run to its surroundings; steps of rounds in ``failures`` are known to hang, and not tried again."""

    on_round: OnRound = ignore
    watch: Watch = ignore
    heartbeat: Heartbeat = ignore
    failures: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class Drive:
    """Parts of a run."""

    scenario: Scenario
    folder: RunFolder
    env: Environment
    team: Team
    calls: Calls = Calls()


def drive(given: Drive) -> Summary:
    """Run from the state of the folder to the end."""
    begun = begin(given)
    loop = _Loop(given, begun)
    while loop.record.round < given.scenario.rounds and given.env.agents:
        loop.play()
    return end(given, begun, None if begun.truth is None else begun.truth.late(loop.behind))


@dataclass(frozen=True)
class Begun:
    """World of a run after its reset, which took ``seconds``."""

    observations: Mapping[str, Any]
    infos: Mapping[str, Any]
    truth: GroundTruth | None
    labels: Labels
    seconds: float


def begin(given: Drive) -> Begun:
    """Tidy the folder, reset the world, and keep it there."""
    scenario, folder, env, team = given.scenario, given.folder, given.env, given.team
    folder.sweep_out()
    began = time.perf_counter()
    given.calls.heartbeat(0)
    observations, infos = reset(env, scenario.seed)
    given.calls.heartbeat(None)
    seconds = time.perf_counter() - began
    # read after the reset: a world may draw its field there
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    aim = {} if team.problem.aim == "peak" else {"goal": team.problem.aim, "level": team.problem.level}  # as stated
    names = team.world.variables if isinstance(team.world, FunctionWorld) else ()
    truth = truth and truth.each(lambda then: replace(metrics.within_rules(then, team.problem, names), **aim))
    labels = Labels.of(env, truth)
    if truth is not None and isinstance(team.world, FieldWorld) and team.world.task is None:
        warn_of_aim(team.setup, truth.goal)
    states.keep_world(folder, scenario, team, infos, truth, labels)
    return Begun(observations, infos, truth, labels, seconds)


def end(given: Drive, begun: Begun, truth: GroundTruth | None, workers: WorkersReport | UnsetType = UNSET) -> Summary:
    """Write and return the summary of a run; ``truth`` is that of its last round."""
    scenario, folder, team = given.scenario, given.folder, given.team
    records = folder.records()
    values, worst_off = find_references(scenario, given.env, team, begun.truth, records[-1].best)
    scopes = states.scopes_in_use(records[-1], states.read_world(folder))
    chosen = acquisition_in_words(team.setup) if team.setup.chooses else UNSET
    seconds = workers.wall_s if workers else sum(timing.total for timing in folder.timings())
    summary = msgspec.structs.replace(
        summarise(scenario, records, begun.labels, truth, seconds),
        **{"references": values, "worst_off": worst_off, "scopes": scopes, "acquisition": chosen, "workers": workers},
    )
    folder.write_json("summary.json", summary)
    return summary


def reset(env: Environment, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Reset a world; one that would end the process is refused."""
    try:
        observations, infos = env.reset(seed=seed)
    except SystemExit as error:
        told = f"its reset ended with {error_text(error)}; wanted observations and infos"
        raise ConfigError(told, "$.environment") from error
    return observations, infos


class _Loop:
    """Rounds of a run, from the last checkpoint that the log covers, or from the reset.

    ``record`` is that of the last round; ``behind`` counts failed rounds, which did not advance the world.
    """

    def __init__(self, given: Drive, begun: Begun) -> None:
        log, checkpoint = given.folder.log(), states.read_checkpoint(given.folder)
        is_restored = checkpoint is not None and checkpoint.round == len(log.lines) and bool(checkpoint.line)
        if checkpoint is not None and is_restored:
            given.folder.append(checkpoint.line.encode())  # how long it took is lost
            log = given.folder.log()
        self._given, self._truth, self._logged = given, begun.truth, log.lines
        # the log takes precedence: a step may have ended, and been logged, just as its process was ended
        self._failures = {number: why for number, why in given.calls.failures.items() if number >= len(self._logged)}
        self._failures |= {record.round: record.failure for record in log.records if record.failure}
        self._steps: list[Mapping[str, np.ndarray]] = []  # actions, for a world without saved state
        env, team = given.env, given.team
        # a policy may remember, so it acts again from the first round
        if checkpoint is not None and given.scenario.policy is None and checkpoint.round < len(self._logged):
            env.unwrapped.set_state(checkpoint.world)
            team.load_state_dict(checkpoint.team)
            self.record = log.records[checkpoint.round]
            self.behind = sum(number <= checkpoint.round for number in self._failures)
            self._observations, self._infos = dict[str, Any].fromkeys(env.agents), dict[str, Any]()
            self._state = _state_of(env)
            if is_restored:  # nobody was told of it
                given.calls.on_round(self.record, False)
        else:
            self._state = _state_of(env)
            self._observations, self._infos, self.behind = begun.observations, begun.infos, 0
            began = time.perf_counter()
            team.begin(begun.infos)
            team.refit()
            learned = time.perf_counter()
            self.record = record_reset(team, begun.infos, self._truth)
            timing = Timing(0, 0.0, begun.seconds, learned - began, time.perf_counter() - learned)
            # agents that measured elsewhere are not asked again for what they measured in the reset
            keep = self._keep if (given.folder.path / ELSEWHERE).exists() else self._log
            given.calls.on_round(self.record, keep(timing))

    def play(self) -> None:
        env, team, calls = self._given.env, self._given.team, self._given.calls
        links, began = links_of(env), time.perf_counter()
        actions = team.act(self._observations, self._infos)
        decided = time.perf_counter()
        step, failure = self._step(actions)
        measured = time.perf_counter()
        team.observe(*step)
        team.refit()
        learned = time.perf_counter()
        self.behind += failure is not None
        truth = None if self._truth is None else self._truth.late(self.behind)
        record = record_round(self.record, team, actions, step.infos, links, truth)
        self.record = record = msgspec.structs.replace(record, failure=failure)
        recorded = time.perf_counter()
        times = (decided - began, measured - decided, learned - measured, recorded - learned)
        self._state = _state_of(env)
        calls.on_round(record, self._keep(Timing(record.round, *times)))
        last = self._observations
        self._observations = {agent: step.observations.get(agent, last.get(agent)) for agent in env.agents}
        self._infos = step.infos

    def _step(self, actions: Mapping[str, np.ndarray]) -> tuple[Step, str | None]:
        """Answer of the world, empty with the reason of a failure."""
        given, number, nothing = self._given, self.record.round + 1, Step({}, {}, {}, {}, {})
        if (failure := self._failures.get(number)) is not None:
            return nothing, failure
        given.calls.heartbeat(number)
        try:
            step = Step(*given.env.step(actions))
        except TransportError:  # a disconnected agent of a fleet, not a failure of the world, which continued
            raise
        except (Exception, SystemExit) as error:
            if given.scenario.when_step_fails == "stop":
                raise
            self._put_back()
            return nothing, error_text(error)
        finally:
            given.calls.heartbeat(None)
        if self._state is None:
            self._steps.append(actions)
        return step, None

    def _put_back(self) -> None:
        """Set a world that failed within a step back to its state before."""
        env = self._given.env
        if self._state is not None:
            env.unwrapped.set_state(self._state)
            return
        reset(env, self._given.scenario.seed)
        for actions in self._steps:
            env.step(actions)

    def _keep(self, timing: Timing) -> bool:
        """Log the last round, and write a checkpoint of a new one; True if it was logged before.

        The checkpoint comes first, and has the line: no logged round must be played again. If it cannot be written, the
        line is logged all the same.
        """
        folder, number = self._given.folder, self.record.round
        if number < len(self._logged) or self._state is None:
            return self._log(timing)
        kept = self._given.team.state_dict(), self._state, msgspec.json.encode(self.record).decode()
        try:
            states.write_checkpoint(folder, states.Checkpoint(number, *kept))
        except OSError:
            self._log(timing)
            raise
        return self._log(timing)

    def _log(self, timing: Timing) -> bool:
        """Log the last round, or compare it with the existing line; True if there was one."""
        line, number, folder = msgspec.json.encode(self.record), self.record.round, self._given.folder
        if number >= len(self._logged):
            folder.append(line, timing)
            return False
        if line != self._logged[number]:
            then, now = folder.versions(), versions()
            differ = [f"{name} {then.get(name)} -> {own}" for name, own in now.items() if then.get(name) != own]
            why = "same versions, so the machine or the world changed"
            if differ:
                why = f"versions changed: {', '.join(differ)}"
            elif not hasattr(self._given.env.unwrapped, "get_state"):
                why = "a world without get_state() is played again from the start, and must measure the same"
            got = f"{folder.path}: round {number} differs from the logged line ({why})"
            raise RunFolderError(f"{got}; start it again in another folder")
        return True


def _state_of(env: Environment) -> State | None:
    """Complete state of a world; None if it states none."""
    if not hasattr(world := env.unwrapped, "get_state"):
        return None
    state = copy.deepcopy(world.get_state())
    if not isinstance(state, dict) or set(state) != {"json", "arrays"} or not hasattr(world, "set_state"):
        wanted = "wanted {'json': plain data, 'arrays': {name: array}}, and a method set_state(state) that takes it"
        raise ConfigError(f"get_state() returned {short(state)}; {wanted}", at="$.environment")
    return state


def links_of(env: Environment) -> list[tuple[str, str]]:
    """Connected pairs of agents, in the environment's order of agents."""
    if not hasattr(env.unwrapped, "interaction_graph"):
        return []
    agents, links = env.possible_agents, env.unwrapped.interaction_graph().adj
    rank = {agent: index for index, agent in enumerate(agents)}
    after = [sorted(n for n in map(rank.__getitem__, links.get(agent, ())) if n >= rank[agent]) for agent in agents]
    return [(agent, agents[n]) for agent, others in zip(agents, after, strict=True) for n in others]

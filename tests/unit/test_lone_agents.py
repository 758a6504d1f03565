"""Agents in processes of their own, with nothing in reach but their own data and messages, decide as a team does."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.coordination.messages import Codec
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.worlds import FunctionWorld
from swarmbo_envs import wlan_power_v0

PROGRAM = Path(__file__).parents[2] / "docs" / "lone_agent.py"
LIMIT = 120.0  # seconds until processes are stopped, whatever they do
SEED, INITIAL, DECISIONS = 3, 4, 3
ADDITIVE, ENSEMBLE = sb.AdditiveGPSettings(), sb.EnsembleSettings(n_features=32)
FADING = sb.AdditiveGPSettings(time=sb.TimeAxis(lengthscale_median=2.0))
SMALL_ADMM = sb.ADMM(rounds=4, starts=4, screened=32, polish_steps=6)

Place = Mapping[str, float]
Evaluate = Callable[[Place], tuple[dict[str, float], dict[str, float]]]  # what was asked: where it was, and outcomes
World = tuple[FactorGraph, dict[str, tuple[float, float]], "nx.Graph[str] | None", Callable[[], Evaluate]]


class Processes:
    """One process per agent; this one carries their messages and looks at none but to count them."""

    def __init__(self, world: World, acquisition: Any, belief: Any = ADDITIVE) -> None:
        graph, bounds, links, _ = world
        self.graph = graph
        self.scopes = {
            agent: {v for f in graph.factors_owned_by(agent) for v in graph.scope(f)} for agent in graph.agents
        }
        environment = os.environ | {"PYTHONPATH": str(Path(sb.__file__).parents[1])}
        self.processes = {
            agent: subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            for agent in graph.agents
        }
        self.alarm = threading.Timer(LIMIT, self.stop)
        self.alarm.start()
        for agent in graph.agents:
            known = {
                "agent": agent,
                "factors": graph.factors,
                "scopes": graph.scopes,
                "factor_owners": graph.factor_owners,
                "variables": graph.variables,
                "variable_owners": graph.variable_owners,
                "links": None if links is None else list(links.edges),
                "bounds": {variable: bounds[variable] for variable in self.scopes[agent]},
                "acquisition": acquisition,
                "belief": belief,
                "coordination": SMALL_ADMM,
                "seed": SEED,
                "initial": INITIAL,
            }
            self._write(agent, known)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.alarm.cancel()
        self.stop()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def _write(self, agent: str, content: object) -> None:
        pipe, frame = self.processes[agent].stdin, msgspec.msgpack.encode(content)
        assert pipe is not None
        pipe.write(len(frame).to_bytes(4, "little") + frame)
        pipe.flush()

    def _requested(self, requests: Mapping[str, object]) -> dict[str, dict[str, Any]]:
        for agent, request in requests.items():
            self._write(agent, request)
        answers: dict[str, dict[str, Any]] = {}
        for agent in requests:
            pipe = self.processes[agent].stdout
            assert pipe is not None
            head = pipe.read(4)
            assert head, f"{agent} ended"
            answers[agent] = msgspec.msgpack.decode(pipe.read(int.from_bytes(head, "little")))
        return answers

    def ask(self, lost: int | None = None) -> tuple[dict[str, float], Counter[str], Counter[str], Counter[str]]:
        """The point, and by phase how many messages passed, how many bytes, and how many between strangers.

        Args:
            lost: Number of the message that does not arrive; None: all arrive.
        """
        messages, sizes, far = Counter[str](), Counter[str](), Counter[str]()
        point: dict[str, float] = {}
        requests: dict[str, object] = {agent: {"ask": None} for agent in self.graph.agents}
        while requests:
            inboxes: dict[str, list[tuple[str, bytes]]] = {}
            for agent, answer in self._requested(requests).items():
                point |= answer["decision"] or {}
                for phase, recipient, payload in answer["said"]:
                    messages[phase] += 1
                    sizes[phase] += len(payload)
                    tag = type(Codec.decode(payload)).__name__
                    far[tag] += not self._touch(agent, recipient)
                    if messages.total() - 1 != lost:
                        inboxes.setdefault(recipient, []).append((agent, payload))
            requests = {agent: {"inbox": inbox} for agent, inbox in inboxes.items()}
        return point, messages, sizes, far

    def _touch(self, one: str, other: str) -> bool:
        """Whether an edge of the factor graph, or two that meet in a variable, lead from one agent to the other."""
        mine, theirs = (self.scopes[agent] | set(self.graph.variables_owned_by(agent)) for agent in (one, other))
        return bool(mine & theirs)

    def tell(self, place: Place, outcomes: Mapping[str, float]) -> None:
        """Every agent what its own factors brought, and where their variables stood."""
        requests = {
            agent: {
                "told": (
                    {variable: place[variable] for variable in scope},
                    {factor: outcomes[factor] for factor in self.graph.factors_owned_by(agent)},
                )
            }
            for agent, scope in self.scopes.items()
        }
        self._requested(requests)


def wlan() -> World:
    env = wlan_power_v0.parallel_env(
        topology={"generated": {"access_points": 4, "users": 8, "area_m": [120.0, 120.0]}}, noise_std=0.1
    )
    env.reset(seed=SEED)
    world = FunctionWorld(env)
    assert world.graph is not None
    assert world.outcomes == "per-factor"

    def fresh() -> Evaluate:
        own = wlan_power_v0.parallel_env(
            topology={"generated": {"access_points": 4, "users": 8, "area_m": [120.0, 120.0]}}, noise_std=0.1
        )
        own.reset(seed=SEED)
        seen = FunctionWorld(own)

        def evaluate(point: Place) -> tuple[dict[str, float], dict[str, float]]:
            infos = own.step(seen.actions(point, own.agents))[-1]
            place, outcome = seen.point(infos), seen.outcome(infos)
            assert place is not None
            assert isinstance(outcome, dict)
            return place, {factor: float(value) for factor, value in outcome.items() if value is not None}

        return evaluate

    return world.graph, world.bounds, world.links(), fresh


def pairs(edges: list[tuple[str, str]]) -> World:
    """Each factor couples two variables; the first one's agent owns it, and agents hear those they share it with."""
    first = [a for a, _ in edges]
    owners = {variable: variable if variable in first else first[-1] for edge in edges for variable in edge}
    graph = FactorGraph.from_scopes({f"f_{a}{b}": [a, b] for a, b in edges}, variable_owners=owners)
    bounds = {variable: (float(i) - 1.0, float(i) + 2.0) for i, variable in enumerate(graph.variables)}

    def evaluate(point: Place) -> tuple[dict[str, float], dict[str, float]]:
        u = {variable: (point[variable] - low) / (high - low) for variable, (low, high) in bounds.items()}
        outcomes = {
            factor: float(np.sin(5.0 * u[a] + i) + 10.0**i * (u[b] - u[a] * 0.7) ** 2)
            for i, (factor, (a, b)) in enumerate(zip(graph.factors, edges, strict=True))
        }
        return dict(point), outcomes

    links = nx.Graph((owners[a], owners[b]) for a, b in edges)
    return graph, bounds, links, lambda: evaluate


THOROUGH = pytest.mark.thorough  # each starts a process per agent
CHAIN, RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")], [("a", "b"), ("b", "c"), ("c", "a")]


@pytest.mark.parametrize(
    ("world", "acquisition", "belief"),
    [
        pytest.param(wlan, sb.DuMBO(), ADDITIVE, id="WLAN, dumbo", marks=THOROUGH),
        pytest.param(wlan, sb.Auto(), ADDITIVE, id="WLAN, auto", marks=THOROUGH),
        pytest.param(lambda: pairs(CHAIN), sb.DuMBO(coupled=True), ADDITIVE, id="chain, coupled dumbo"),
        pytest.param(lambda: pairs(RING), sb.Auto(), ADDITIVE, id="ring, auto", marks=THOROUGH),
        pytest.param(lambda: pairs(RING), sb.DECHBO(), ADDITIVE, id="ring, dec-hbo", marks=THOROUGH),
        pytest.param(lambda: pairs(RING), sb.Thompson(), ADDITIVE, id="ring, thompson"),
        pytest.param(
            lambda: pairs(RING), sb.ExpectedImprovement(), ADDITIVE, id="ring, expected improvement", marks=THOROUGH
        ),
        pytest.param(lambda: pairs(RING), sb.EGPTS(), ENSEMBLE, id="ring, egp-ts", marks=THOROUGH),
        pytest.param(lambda: pairs(CHAIN), sb.EGPEI(), ENSEMBLE, id="chain, egp-ei", marks=THOROUGH),
        pytest.param(wlan, sb.Auto(), FADING, id="WLAN, auto, fading"),
        pytest.param(lambda: pairs(RING), sb.Thompson(), FADING, id="ring, thompson, fading", marks=THOROUGH),
    ],
)
def test_processes_that_know_only_their_own_outcomes_decide_as_the_team_does(
    world: Callable[[], World], acquisition: Any, belief: Any
):
    where = world()
    graph, bounds, links, fresh = where
    team = sb.Team(
        graph,
        bounds,
        belief=belief,
        acquisition=acquisition,
        coordination=SMALL_ADMM,
        seed=SEED,
        initial=INITIAL,
        outcomes="per-factor",
        variable_owners=dict(zip(graph.variables, graph.variable_owners, strict=True)),
    )
    in_team, apart = fresh(), fresh()
    n = len(graph.agents)
    with threadpool_limits(1, user_api="blas"), Processes(where, acquisition, belief) as processes:
        for turn in range(INITIAL + DECISIONS):
            query = team.ask(links=links)
            point, messages, sizes, far = processes.ask()
            assert point == query.point
            assert team.last_report is not None
            traffic = team.last_report.traffic
            assert (messages["agreement"], sizes["agreement"]) == (traffic.messages, traffic.bytes)
            assert not +far  # every message passes between agents whose factors share a variable
            if turn >= INITIAL:  # one tree of agents, up and down, for each sum over all
                assert messages["ranking"] == 2 * (n - 1)
                assert messages["apart"] == (0 if belief is FADING else 2 * (n - 1))  # it may look again
                assert sizes["ranking"] <= messages["ranking"] * (8 * turn + 52)
            place, outcomes = in_team(query.point)
            team.tell(query, outcomes, point=place)
            processes.tell(*apart(point))


def test_a_lost_message_stops_those_who_wait_for_it_and_nobody_decides_anything_else():
    where = pairs(RING)
    evaluate = where[-1]()

    def asked(lost: int | None) -> tuple[dict[str, float], int]:
        with Processes(where, sb.Auto()) as processes:
            for _ in range(INITIAL):
                processes.tell(*evaluate(processes.ask()[0]))
            point, messages, *_ = processes.ask(lost)
            return point, messages.total()

    with threadpool_limits(1, user_api="blas"):
        point, n_messages = asked(None)
        assert set(point) == set(where[0].variables)
        for lost in (0, 17, n_messages - 2):
            partial, n_sent = asked(lost)
            assert lost < n_sent <= n_messages
            assert set(partial) < set(point)
            assert partial.items() <= point.items()


DISJOINT = {"f": ["a", "b"], "g": ["c", "d"]}


@pytest.mark.parametrize(
    "acquisition",
    ["auto", "dumbo", "dec-hbo", "thompson", "expected-improvement", "add-gp-ucb", "egp-ts", "egp-ei"],
    ids=str,
)
def test_parts_that_share_no_variable_need_nothing_of_each_other_unless_totals_tie_them(acquisition: str):
    graph = FactorGraph.from_scopes(DISJOINT)

    def own_part(outcomes: Any, other: float) -> list[float]:
        team = sb.Team(
            graph,
            dict.fromkeys(graph.variables, (0.0, 1.0)),
            belief=ENSEMBLE if acquisition.startswith("egp") else ADDITIVE,
            acquisition=acquisition,
            coordination=SMALL_ADMM,
            seed=SEED,
            initial=INITIAL,
            outcomes=outcomes,
        )
        seen: list[float] = []
        for _ in range(INITIAL + DECISIONS):
            query = team.ask()
            x = query.point
            parts = {"f": np.sin(5.0 * x["a"]) - x["b"] ** 2, "g": other * np.cos(7.0 * x["c"] + other) * x["d"]}
            team.tell(query, parts if outcomes == "per-factor" else sum(parts.values()))
            seen += [x["a"], x["b"]]
        return seen

    assert own_part("per-factor", 1.0) == own_part("per-factor", 3.0)
    assert own_part("total", 1.0) != own_part("total", 3.0)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, int]]:
    """What an agent reads frames by, from a pipe, and the pipe's other end. It waits a twentieth of a second."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    source, sink = os.pipe()
    lone_agent = importlib.import_module("lone_agent")
    with os.fdopen(source), os.fdopen(sink, "wb", buffering=0) as pipe:
        yield lone_agent.Frames(source, patience=0.05, largest=1000), pipe.fileno()


def test_frames_are_read_whole_one_after_the_other(frames: tuple[Any, int]):
    reader, sink = frames
    contents = [b"a", bytes(range(256)), b"b" * 1000]
    for content in contents:
        os.write(sink, len(content).to_bytes(4, "little") + content)
    assert [reader.read() for _ in contents] == contents


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"\x05", "got 0 of the 3 bytes more of its length of a frame when no more came for 0.05 s"),
        (b"\x05\x00\x00\x00abc", "got 3 of its 5 bytes of a frame when no more came for 0.05 s"),
        (b"\xff\xff\xff\xff", "got a frame of 4294967295 bytes; wanted 1 to 1000"),
        ((1001).to_bytes(4, "little"), "got a frame of 1001 bytes; wanted 1 to 1000"),
        (b"\x00\x00\x00\x00", "got a frame of 0 bytes; wanted 1 to 1000"),
    ],
)
def test_a_frame_that_is_cut_off_or_too_long_is_refused_and_not_waited_for(
    frames: tuple[Any, int], written: bytes, message: str
):
    reader, sink = frames
    os.write(sink, written)
    with pytest.raises(TransportError, match=re.escape(message)):
        reader.read()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"\xff\xff\xff\x7f", "got a frame of 2147483647 bytes; wanted 1 to 67108864"),
        (b"\x09\x00\x00\x00abc", "got 3 of its 9 bytes of a frame when the input ended"),
        (b"\x03\x00\x00\x00abc", "Expected `object`, got `int`"),
    ],
)
def test_a_process_that_gets_no_frames_ends_with_one_line(written: bytes, message: str):
    environment = os.environ | {"PYTHONPATH": str(Path(sb.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, str(PROGRAM)], input=written, capture_output=True, env=environment, timeout=LIMIT, check=False
    )
    said = ended.stderr.decode()
    assert ended.returncode == 1
    assert said.startswith("lone_agent: ")
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("content", [{}, {"ask": None, "inbox": []}, {"told": ({}, {}), "ask": None}])
def test_a_request_for_nothing_or_for_two_things_is_refused(monkeypatch: pytest.MonkeyPatch, content: dict[str, Any]):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    lone_agent = importlib.import_module("lone_agent")
    with pytest.raises(msgspec.ValidationError, match="wanted exactly one of"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(content), type=lone_agent.Request)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({"ask": None}), type=lone_agent.Request).ask is None

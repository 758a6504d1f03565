"""Agents in separate processes, with only their own data and messages, decide as a team does."""

import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.agent import Agent, RemoteAgent
from swarmbo.agent.schema import Participants
from swarmbo.deciding.own_rows import OwnRow, OwnRows
from swarmbo.errors import ConfigError, TransportError, UnknownQueryError

from .carried import sent_by
from .test_agent import CASES, ENSEMBLE, INITIAL, PAIRS, SMALL, Case

EACH = ("auto, several parts", "auto, fading", "dumbo", "coupled dumbo", "dec-hbo", "thompson", "expected improvement")
EACH += ("egp-ts", "egp-ei", "totals, relayed")


class Processes(Case):
    """A case with one process per agent, which end with the context."""

    def agent(self, name: str) -> Any:
        return RemoteAgent(name, self.problem, links=self.links, **self.given)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.close()  # type: ignore[attr-defined]


@pytest.mark.slow  # each agent's process takes seconds to start
@pytest.mark.parametrize("given", [pytest.param(*case.values, id=case.id) for case in CASES if case.id in EACH])
def test_processes_that_know_only_their_own_outcomes_decide_as_the_team_does(given: dict[str, Any]):
    with threadpool_limits(1, user_api="blas"), Processes(**given) as case:
        for _ in range(INITIAL + 3):
            case.play(1)
            assert sent_by(case.agents) == case.team.sent


@pytest.mark.parametrize(
    "acquisition",
    [
        *("auto", "thompson", "egp-ts"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dumbo", "dec-hbo", "add-gp-ucb", "egp-ei")),
        pytest.param("expected-improvement", marks=pytest.mark.slow),
    ],
)
def test_separate_parts_do_not_affect_each_other_unless_outcomes_are_totals(acquisition: str):
    graph = sb.FactorGraph.from_scopes(PAIRS)
    belief = ENSEMBLE if acquisition.startswith("egp") else sb.AdditiveGPSettings()
    given: dict[str, Any] = {"belief": belief, "acquisition": acquisition, "coordination": SMALL, "initial": 4}

    def own_part(outcomes: Any, other: float) -> list[float]:
        team, seen = (
            sb.Team(graph, dict.fromkeys("abcd", (0.0, 1.0)), seed=3, outcomes=outcomes, **given),
            list[float](),
        )
        for _ in range(6):
            query = team.ask()
            x = query.point
            parts = {"f": np.sin(5.0 * x["a"]) - x["b"] ** 2, "g": other * np.cos(7.0 * x["c"] + other) * x["d"]}
            team.tell(query, parts if outcomes == "per-factor" else sum(parts.values()))
            seen += [x["a"], x["b"]]
        return seen

    assert own_part("per-factor", 1.0) == own_part("per-factor", 3.0)
    assert own_part("total", 1.0) != own_part("total", 3.0)


@pytest.mark.thorough
def test_an_agent_in_a_process_raises_the_agent_s_errors_and_returns_its_state_and_ends():
    case = Case({"f": ["a", "b"], "g": ["b", "a"]}, acquisition="auto", initial=1)
    with threadpool_limits(1, user_api="blas"), RemoteAgent("a", case.problem, **case.given) as agent:
        case.agents["a"] = agent  # type: ignore[assignment]
        with pytest.raises(UnknownQueryError, match="query 'q00009' is not pending"):
            agent.tell("q00009", 1.0)
        ((query_id, point),) = case.ask_all()  # the process continues
        with pytest.raises(ConfigError, match=r"wanted only its own: \['f'\]"):
            agent.tell(query_id, {"g": 1.0})
        case.tell(query_id, case.outcomes(point))
        case.play(1)
        assert agent.is_alive
        state = agent.state_dict()
    assert not agent.is_alive
    with pytest.raises(TransportError, match="the process of agent 'a' has ended"):
        agent.ask()
    case.agents["a"] = Agent.from_state_dict(state)
    case.play(1)


def test_an_error_in_making_an_agent_is_raised_by_the_caller():
    with pytest.raises(ConfigError, match="got agent 'z'") as refused:  # its traceback keeps all frames alive
        RemoteAgent("z", sb.Problem.of(sb.FactorGraph.from_scopes(PAIRS), dict.fromkeys("abcd", (0.0, 1.0))))
    assert refused.tb is not None
    assert "agent z" not in [process.name for process in active_children()]


OWN_CODE = """
class DeviceError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


class Travel:
    def rounds(self, agent, origins, places):
        raise DeviceError(7, "no map of this area")

    def rounds_left(self, agent):
        return 100

    def base(self, agent):
        return None
"""


def test_an_exception_of_own_code_that_cannot_be_sent_is_named_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own_travel.py").write_text(OWN_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    travel = import_module("own_travel").Travel()
    problem = sb.Problem.of_field(("a",), sb.Domain(np.zeros(2), np.ones(2)))
    with RemoteAgent("a", problem, coordination="routes", travel=travel, rounds=10) as agent:
        agent.tell(None, 1.0, location=[0.5, 0.5])
        agent.ask()
        with pytest.raises(RuntimeError, match="DeviceError: 7: no map of this area") as raised:
            agent.tick(0.0)
        assert "in rounds" in raised.value.__notes__[0]
        assert agent.state_dict()["json"]["name"] == "a"


def test_an_answer_that_cannot_be_unpickled_is_not_awaited_again():
    problem = sb.Problem.of_field(("a",), sb.Domain(np.zeros(2), np.ones(2)))
    with RemoteAgent("a", problem) as agent:
        pipe = agent._connection

        def receive() -> None:
            pipe.recv_bytes()
            raise TypeError("a class of another version")

        agent._connection = SimpleNamespace(send=pipe.send, poll=pipe.poll, recv=receive)  # type: ignore[assignment]
        with pytest.raises(TypeError, match="another version"):
            agent.ask()
        agent._connection = pipe
        assert agent.state_dict()["json"]["name"] == "a"


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_agent_in_a_process_has_all_attributes_of_an_agent():
    problem = sb.Problem.of_field(("a", "b"), sb.Domain(np.zeros(2), np.ones(2)))
    agent = Agent("a", problem, level=0.5, sites=[[0.1, 0.2], [0.3, 0.4]], has_base=True)
    assert [name for name in dir(agent) if not (name.startswith("_") or hasattr(RemoteAgent, name))] == []
    with RemoteAgent.from_state_dict(agent.state_dict()) as remote:
        assert (remote.level, remote.has_base, remote.travel) == (0.5, True, None)
        assert remote.sites.tolist() == [[0.1, 0.2], [0.3, 0.4]]
        assert remote.problem.to_plain() == agent.problem.to_plain()
        remote.learn_row("", OwnRow(0, {"a": 1.0}, place={"a[0]": 0.1, "a[1]": 0.2}))
        remote.replace_rows(OwnRows())
        assert remote.state_dict()["json"]["own"] == agent.state_dict()["json"]["own"]
        remote.links = nx.path_graph(problem.agents)
        remote.participants = Participants(1, problem.agents)
        assert sorted(remote.links.edges) == [("a", "b")]
        assert (remote.participants.members, remote.agreement, remote.refused) == (problem.agents, -1, {})
        with pytest.raises(ConfigError, match="wanted mode = 'asynchronous'"):
            remote.ask()
        with pytest.raises(AttributeError):
            remote.link = None  # type: ignore[attr-defined]
        pipe = remote._connection
        remote._connection = SimpleNamespace(send=pipe.send, poll=interrupted, recv=interrupted)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            remote.links.nodes()
        remote._connection = pipe
        if os.name == "posix":
            os.kill(remote._process.pid, signal.SIGINT)  # type: ignore[arg-type]  # like Ctrl-C at a terminal
        assert (remote.patience, remote.level) == (np.inf, 0.5)  # no call gets the answer of an interrupted call


@pytest.mark.slow
def test_the_agents_of_the_page_run_in_separate_processes(tmp_path: Path):
    page = (Path(__file__).parents[3] / "docs" / "guide" / "processes.md").read_text(encoding="utf-8")
    first = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    imports, _, code = first.partition("\n\n")
    lines = [
        *re.sub(r"\bAgent\(", "RemoteAgent(", code).splitlines(),
        "print(transport.traffic)",
        "[agent.close() for agent in alone.values()]",
    ]
    text = [imports.replace("import Agent,", "import RemoteAgent,"), "if __name__ == '__main__':", *lines]
    script = "\n".join(text[:2] + [f"    {line}" for line in text[2:]])
    (tmp_path / "agents.py").write_text(script, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(sb.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "agents.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"Traffic(messages=" in ran.stdout

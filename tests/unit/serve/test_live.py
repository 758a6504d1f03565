"""A real service on loopback with many clients and kills: each query gets one outcome, and nothing is lost."""

import asyncio
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from swarmbo.evaluations.ledger import LEDGER
from swarmbo.runs import load, load_run
from swarmbo.serve import server
from swarmbo.serve.server import Address, _token, open_broker, serve

from .conftest import RunningService

pytest.importorskip("uvicorn")

ROUNDS = 40
SETTINGS = [f"rounds={ROUNDS}", f"initial={ROUNDS}"]  # all queries are from the initial design, which takes no time


def camel(point):
    x, y = point["x0"], point["x1"]
    return -((4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2)


class Clients:
    """Threads that ask and tell, retry while the service is down, and repeat requests."""

    def __init__(self, service, count):
        self.service, self.answers, self.errors = service, [], []
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(count)]

    def run(self):
        for thread in self.threads:
            thread.start()

    def work(self, number):
        draw = random.Random(number)
        try:
            for turn in range(5000):
                status, asked = self.patiently("/ask", {"key": f"{number}-{turn}", "lease_s": draw.choice([0.2, 3.0])})
                if status == 410:
                    return
                if status == 429:
                    time.sleep(0.1)
                    continue
                assert status == 200, asked
                time.sleep(draw.expovariate(20.0))
                if draw.random() < 0.15:
                    continue  # a client that never returns its outcome
                for _ in range(draw.choice([1, 1, 2])):
                    answer = self.patiently(f"/tell/{asked['query']}", {"outcome": camel(asked["point"])})
                    self.answers.append((asked["query"], asked["point"], *answer))
        except Exception as error:  # noqa: BLE001  shown by the test
            self.errors.append(error)

    def patiently(self, path, body):
        while self.service.seconds_up() < 60.0:  # restarts are not counted
            try:
                return self.service.call(path, body)
            except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError, OSError):
                time.sleep(0.1)
        raise AssertionError("the service is there and does not answer")

    def join(self, seconds):
        for thread in self.threads:
            thread.join(seconds)
        assert not self.errors, self.errors[:3]
        assert not any(thread.is_alive() for thread in self.threads)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_clients", "n_kills"),
    [(8, 1), (64, 20)],
)
def test_clients_of_a_killed_service_lose_and_duplicate_nothing(tmp_path, n_clients, n_kills):
    """All answers are compared with the log."""
    folder = tmp_path / "served"
    draw = random.Random(n_clients)
    with RunningService(folder, "camel", SETTINGS, "--pending", str(max(8, n_clients))) as service:
        clients, output = Clients(service, n_clients), []
        clients.run()
        for _ in range(n_kills):
            time.sleep(draw.uniform(0.2, 1.5))
            service.kill()
            output += service.output
            service.start()
        clients.join(120)
        status, state = service.call("/state")
        assert (status, state["told"], state["pending"]) == (200, ROUNDS, [])
        service.kill(signal.SIGINT)
        output += service.output
    assert not [line for line in output if "Traceback" in line or "Error" in line], output
    require_run_folder(folder)
    assert sum("token" in line for line in output) == 1  # printed only once
    events = [json.loads(line) for line in (folder / LEDGER).read_text().splitlines()]
    points = {event["query"]: event["point"] for event in events if event["kind"] == "ask"}
    tells = [event for event in events if event["kind"] == "tell"]
    assert sorted(event["query"] for event in tells) == sorted(points)  # one outcome per query
    assert len(points) == ROUNDS
    assert all(event["outcome"] == camel(points[event["query"]]) for event in tells)
    statuses = {status for _, _, status, _ in clients.answers}
    assert statuses == {200}  # also for repeated and late tells of the same value
    assert all(points[query] == point for query, point, _, _ in clients.answers)
    # a team that was never killed asks for the same points
    scenario = load("camel", SETTINGS)
    with open_broker(scenario, folder.parent / "undisturbed", 10**6, False) as broker:
        by_query = iter(points.items())
        for event in events:
            if event["kind"] == "ask":
                query, point = next(by_query)
                found = broker.ledger.ask()
                assert (found.id, found.point) == (query, point)
            elif event["kind"] == "tell":
                broker.ledger.tell(event["query"], event["outcome"])
        history = broker.ledger.team.history
    with open_broker(scenario, folder, 10**6, False) as broker:
        assert np.array_equal(broker.ledger.team.history.X, history.X)
        assert np.array_equal(broker.ledger.team.history.totals, history.totals)


def require_run_folder(folder):
    """Check that the folder has a complete run, with a record per query in the order of tells."""
    done = load_run(folder)
    assert done.is_complete
    assert done.best.mean == max(record.joint.measurement for record in done.records[1:])
    events = [json.loads(line) for line in (folder / LEDGER).read_text().splitlines()]
    outcomes = [(event["query"], event["outcome"]) for event in events if event["kind"] == "tell"]
    assert [(record.query, record.joint.measurement) for record in done.records[1:]] == outcomes
    rows = (folder / "rounds.csv").read_text().splitlines()
    assert [int(row.split(",")[0]) for row in rows[1:]] == list(range(ROUNDS + 1))
    assert len(done.table()["value"]) == ROUNDS


@pytest.mark.skipif(os.name != "posix", reason="a process gets no such signal")
def test_a_service_prints_its_token_once_and_closes_its_run_folder_at_an_interrupt(tmp_path):
    settings = ["rounds=2", "initial=1"]
    with RunningService(tmp_path / "served", "camel", settings) as service:
        assert service.token in "".join(service.output)
        assert (tmp_path / "served" / "token").stat().st_mode & 0o077 == 0
        with pytest.raises(Exception, match="another process"):
            serve(load("camel", settings), tmp_path / "served", Address(port=0))
        query = service.call("/ask", {"key": "k"})[1]["query"]
        with socket.create_connection(("127.0.0.1", service.port)) as half:  # a client that disconnects within its body
            head = f"POST /tell/{query} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {service.token}\r\n"
            half.sendall(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        assert service.call(f"/tell/{query}", {"outcome": 1.0})[0] == 200
        assert service.call("/ask", {"key": "pending"})[0] == 200
        service.kill(signal.SIGINT)
        assert service.process.returncode == 0
        assert [line for line in service.output if "swarmbo: " not in line] == []
        assert "stopped" in service.output[-1]
    assert not load_run(tmp_path / "served").is_complete


def refused(capsys, *arguments, scenario="camel"):
    """Run the command with invalid arguments; return its error line."""
    from swarmbo.cli import app

    with pytest.raises(SystemExit) as ended:
        app(["serve", scenario, *map(str, arguments)])
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_invalid_addresses_files_and_settings_are_refused(tmp_path, capsys):
    out = ("--out", tmp_path / "served", "--set", "rounds=3")
    assert "--insecure" in refused(capsys, *out, "--host", "0.0.0.0")
    assert "wanted both" in refused(capsys, *out, "--tls-cert", "cert.pem")
    assert "integer >= 1" in refused(capsys, *out, "--pending", 0)
    assert not (tmp_path / "served").exists()
    short = tmp_path / "short"
    short.write_text("abc")
    assert "at least 16" in refused(capsys, *out, "--token-file", short)
    assert "cannot be read" in refused(capsys, *out, "--token-file", tmp_path / "none")
    assert "PEM" in refused(capsys, *out, "--tls-cert", short, "--tls-key", short)
    assert "from 0 to 65535" in refused(capsys, *out, "--port", 70000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "another --host or --port" in refused(capsys, *out, "--port", taken.getsockname()[1])
    assert "another run" in refused(capsys, *out, "--set", "seed=3")
    assert "routes" in refused(capsys, "--out", tmp_path / "other", scenario="robots-depot")
    assert "got a policy" in refused(capsys, *out, "--trust", "--set", "policy=mine:Policy")
    assert "got workers" in refused(capsys, *out, "--set", "workers.count=2")


def test_idle_connections_are_closed_and_block_no_client(monkeypatch):
    import uvicorn

    monkeypatch.setattr(server, "IDLE_S", 0.5)

    async def slow(scope, receive, send):
        await asyncio.sleep(1.5)  # a decision is not idle
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    quiet = {"log_level": "critical", "lifespan": "off", "ws": "none"}
    config = uvicorn.Config(slow, http="h11", limit_concurrency=4, timeout_keep_alive=60, **quiet)
    running = server._closing_idle_connections(uvicorn.Server(config))
    request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        silent, begun, patient, refused = (socket.create_connection(listening.getsockname(), 10) for _ in range(4))
        time.sleep(0.2)
        refused.sendall(request)
        assert refused.recv(99).startswith(b"HTTP/1.1 503")
        refused.close()
        begun.sendall(request[:-2] + b"Content-Length: 5\r\n\r\n")  # a body that never comes
        patient.sendall(request)
        assert [silent.recv(1), begun.recv(1)] == [b"", b""]
        assert patient.recv(99).startswith(b"HTTP/1.1 200")
        patient.sendall(request[:9])  # the next request of a connection has to be complete in time, too
        with suppress(ConnectionResetError):
            assert patient.recv(99) == b""
        running.should_exit = True
        thread.join(10)
        for link in (silent, begun, patient):
            link.close()


def test_an_empty_token_file_after_a_kill_gets_a_token(tmp_path):
    own, output = tmp_path / "token", []
    own.write_text("")
    token = _token(None, own, output.append)
    assert own.read_text() == f"{token}\n"
    assert token in output[0]
    assert _token(None, own, output.append) == token
    assert len(output) == 1


PAGE = Path(__file__).parents[3] / "docs" / "guide" / "serve.md"
FILES = dict(re.findall(r"<!-- (?:file|controller): (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


@pytest.fixture
def service(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with RunningService(tmp_path / "oven", tmp_path / "oven.toml", ["initial=12"]) as service:
        yield service


@pytest.mark.parametrize(
    ("controller", "program"),
    [
        pytest.param("controller.py", sys.executable, marks=pytest.mark.thorough),
        pytest.param("controller.sh", "sh", marks=pytest.mark.slow),
    ],
)
def test_a_controller_tells_all_queries(service, tmp_path, controller, program):
    if controller.endswith(".sh") and (os.name != "posix" or not shutil.which("curl")):
        pytest.skip("needs curl and a shell")
    command = [program, controller, f"http://127.0.0.1:{service.port}", service.token, "ada"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    _, state = service.call("/state")
    assert (state["told"], state["pending"], state["failed"]) == (12, [], 0), ended
    assert state["best"]["outcome"] > -20.0
    assert "Traceback" not in ended.stderr
    service.kill(signal.SIGTERM)
    assert service.process.returncode == 0
    assert load_run(tmp_path / "oven").is_complete


def test_the_controller_in_python_has_about_20_lines():
    assert len(FILES["controller.py"].splitlines()) <= 24
    assert set(FILES) == {"oven.toml", "controller.py", "controller.sh"}


@pytest.mark.parametrize(("last", "end"), [(410, None), (422, "the reason")])
def test_the_controller_in_python_waits_for_a_busy_service_and_ends_with_the_reason(monkeypatch, last, end):
    asked = {"query": "q1", "told": False, "point": {"celsius": 190, "minutes": 35}}
    answers, called = [429, 503, asked, 503, {}, last], list[str]()

    def answered(request, timeout):
        called.append(request.selector)
        body = answers[len(called) - 1]
        if isinstance(body, int):
            raise urllib.error.HTTPError(request.full_url, body, "refused", {}, io.BytesIO(b"the reason"))
        return io.BytesIO(json.dumps(body).encode())

    monkeypatch.setattr(urllib.request, "urlopen", answered)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["controller.py", "http://127.0.0.1:1", "token", "ada"])
    with pytest.raises(SystemExit) as ended:
        exec(FILES["controller.py"], {})
    assert ended.value.code == end
    assert called == ["/ask"] * 3 + ["/tell/q1"] * 2 + ["/ask"]

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

import swarmbo as sb
from swarmbo.evaluations import Ledger
from swarmbo.evaluations.ledger import LEDGER
from swarmbo.serve.app import Application
from swarmbo.serve.broker import Broker, Service

SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}
BOUNDS = {"x": (0.0, 1.0), "y": (-1.0, 1.0), "z": (0.0, 2.0)}
TOKEN = "a-token-of-the-tests"
ROUNDS, MOST_PENDING = 8, 4


class Clock:
    """A clock that only tests advance."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def make_team(kind="total"):
    """A team whose queries are mostly from the initial design, which takes no time."""
    if kind == "field":
        return sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 2.0], seed=5)
    return sb.Team(sb.FactorGraph.from_scopes(SCOPES), BOUNDS, outcomes=kind, initial=6, seed=5)


def value_of(point):
    """Outcomes per factor."""
    return {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["z"] - 0.4) ** 2) - point["y"] ** 2}


def open_broker(folder, clock, kind="total"):
    """A broker of a folder, new or continued after a kill."""
    if (folder / LEDGER).exists():
        ledger = Ledger.open(folder, lambda: make_team(kind))
    else:
        ledger = Ledger.create(folder, make_team(kind))
    return Broker(ledger, Service("made", 5, ROUNDS, "m", 0.0), MOST_PENDING, clock)


@contextmanager
def client_of(broker, token=TOKEN):
    """An HTTP client of a broker, without a network."""
    testclient = pytest.importorskip("starlette.testclient")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with testclient.TestClient(Application(broker, TOKEN), headers=headers) as client:
        yield client


class RunningService:
    """`swarmbo serve` in a process, which is killed at the end of the context."""

    def __init__(self, folder, source, settings=(), *more):
        overrides = [part for setting in settings for part in ("--set", setting)]
        self.command = [sys.executable, "-m", "swarmbo", "serve", str(source), "--out", str(folder), *overrides, *more]
        self.folder, self.process, self.port = folder, None, 0
        self._since = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        command = [*self.command, "--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.output = []
        for line in self.process.stderr:
            self.output.append(line)
            if "serving" in line:
                self.port = int(line.rstrip().rstrip("/").rpartition(":")[2])
                self._since = time.monotonic()
                break
        else:
            raise AssertionError(f"it ended with {self.process.wait()}: {self.output}")

    def seconds_up(self):
        """Seconds since the start of the service; 0 while it is down."""
        return 0.0 if (since := self._since) is None else time.monotonic() - since

    def kill(self, how=signal.SIGKILL):
        self._since = None
        if self.process.poll() is None:
            self.process.send_signal(how)
        if not self.process.stderr.closed:
            self.output += self.process.stderr.readlines()
            self.process.stderr.close()
        self.process.wait(30)

    @property
    def token(self):
        return (self.folder / "token").read_text().strip()

    def call(self, path, body=None):
        """Send a request; return status and answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def broker(tmp_path, clock):
    return open_broker(tmp_path, clock)


@pytest.fixture
def client(broker):
    with client_of(broker) as client:
        yield client

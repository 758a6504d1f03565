"""Fleets of processes over Zenoh: the command, kills, and unauthorised senders. On request: ``-m fleet``."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

zenoh = pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

from swarmbo.fleet.link import Link, make_keys, session_settings  # noqa: E402
from swarmbo.fleet.plan import HUB, Plan, endpoints_of  # noqa: E402
from swarmbo.runs.figures import draw_run  # noqa: E402
from swarmbo.runs.folder import RunFolder  # noqa: E402

pytestmark = pytest.mark.fleet
T = TypeVar("T")

SETTINGS = ["--set=rounds=14", "--set=environment.topology={generated={access_points=3,users=6,area_m=[100,100]}}"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "swarmbo", *arguments]


def swarmbo(*arguments: str, **more) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=240, check=False, **more)


def wlan(out: Path, *more: str) -> list[str]:
    """Arguments of the command for a fleet of access points."""
    return ["fleet", "wlan", *SETTINGS, "--out", str(out), "--port", str(free_port()), "--no-figures", "-q", *more]


def wait_for(what: Callable[[], T], seconds: float = 200.0) -> T:
    """First true result, or the last result after a timeout."""
    until = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def logged(out: Path) -> int:
    log = out / "rounds.jsonl"
    return log.read_text().count("\n") if log.is_file() else 0


def beside(do: Callable[[], None], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command and, at the same time, a function."""
    other = threading.Thread(target=do)
    other.start()
    ended = swarmbo(*arguments)
    other.join()
    assert ended.returncode == 0, ended.stderr
    return ended


def free_port() -> int:
    """The first of five free ports in a row."""
    while True:
        port = random.SystemRandom().randrange(20_000, 60_000)
        probes = [socket.socket() for _ in range(5)]
        found = [probe.connect_ex(("127.0.0.1", port + n)) for n, probe in enumerate(probes)]
        for probe in probes:
            probe.close()
        if all(found):
            return port


def points(folder: Path) -> list[list[float]]:
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["joint"]["location"] for line in lines[1:]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The same run in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    ended = swarmbo("run", "wlan", *SETTINGS, "--out", str(folder), "--no-figures", "-q")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    ended = swarmbo("fleet", "keys", "wlan", str(folder), *SETTINGS)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.parametrize("protocol", ["tcp", "tls", "quic"])
def test_a_fleet_of_processes_decides_as_one_process_does(tmp_path, alone, keys, protocol):
    secret = [] if protocol == "tcp" else ["--keys", str(keys)]
    ended = swarmbo(*wlan(tmp_path / "run", "--protocol", protocol, *secret))
    assert ended.returncode == 0, ended.stderr
    assert points(tmp_path / "run") == points(alone)
    assert "found within 14 rounds" in ended.stdout


def test_an_agent_killed_during_a_run_restarts_and_no_decision_changes(tmp_path, alone, keys):
    out, killed = tmp_path / "run", list[int]()

    def kill() -> None:
        wait_for(lambda: logged(out) >= 11)  # by now, agents agree by messages
        found = subprocess.run(["pgrep", "-f", f"agent ap_1 --fleet {out}"], capture_output=True, text=True, check=True)
        killed.append(int(found.stdout.split()[0]))
        os.kill(killed[0], signal.SIGKILL)

    ended = beside(kill, *wlan(out, "--keys", str(keys)))
    assert killed
    assert "processes were started again: ap_1 1 times" in ended.stderr
    assert "network: " in ended.stderr
    assert points(out) == points(alone)
    network = RunFolder.open(out).network()
    assert [line.round for line in network] == list(range(15))
    assert [line.restarts for line in network if line.restarts] == [{"ap_1": 1}]
    assert draw_run(out)[2].name == "faults.png"


def test_a_table_problem_has_the_same_solution_as_in_one_process_despite_a_kill(tmp_path):
    pytest.importorskip("yaml")
    file, out = tmp_path / "three.yaml", tmp_path / "out"
    pairs = {f"c{i}": f"abs(x{i} - x{(i + 1) % 3}) * {i + 1}" for i in range(3)}
    constraints = "\n".join(f"  {name}: {{type: intention, function: {cost}}}" for name, cost in pairs.items())
    variables = ", ".join(f"x{i}: {{domain: d, cost_function: abs(x{i} - {i})}}" for i in range(3))
    head = f"objective: max\ndomains: {{d: {{values: [0 .. 4]}}}}\nvariables: {{{variables}}}\nagents: [a, b, c, d]\n"
    file.write_text(f"{head}constraints:\n{constraints}\n")
    asked = [str(file), "--algo", "mgm", "--seed", "2"]
    log, pid = tmp_path / "log", out / "fleet" / "b" / "pid"
    with log.open("wb") as output:
        fleet = command("fleet", *asked, "--out", str(out), "--port", str(free_port()))
        running = subprocess.Popen(fleet, stdout=output, stderr=output)
        os.kill(int(wait_for(lambda: pid.is_file() and pid.read_text().strip())), signal.SIGKILL)
        assert running.wait(200) == 0, log.read_text()
    assert "processes were started again: b 1 times" in log.read_text()
    alone = json.loads(swarmbo("solve", *asked, "--json").stdout)
    assert json.loads((out / "solution.json").read_text()) == alone
    assert alone["own_nothing"] == ["d"]


def test_an_agent_elsewhere_is_started_by_hand_also_beside_its_journal_of_an_earlier_run(tmp_path, alone, keys):
    for run in ("first", "second"):
        run_with_one_by_hand(tmp_path / run, tmp_path / "there", keys)
        assert points(tmp_path / run) == points(alone)
    assert len([entry for entry in (tmp_path / "there" / "ap_2").iterdir() if entry.is_dir()]) == 2


def by_hand(plan: Path, there: Path) -> "subprocess.Popen[bytes]":
    """An agent that is started in a separate folder with only the plan of the run."""
    wait_for(plan.is_file)
    there.mkdir(exist_ok=True)
    (there / "fleet.json").write_bytes(plan.read_bytes())
    return subprocess.Popen(command("agent", "ap_2", "--fleet", str(there / "fleet.json")))


def run_with_one_by_hand(out: Path, there: Path, keys: Path) -> None:
    agents: list[subprocess.Popen[bytes]] = []
    arguments = wlan(out, "--keys", str(keys), "--elsewhere", "ap_2")
    beside(lambda: agents.append(by_hand(out / "fleet" / "fleet.json", there)), *arguments)
    assert agents[0].wait(20) == 0


def test_a_restarted_command_uses_the_agent_that_still_runs_elsewhere(tmp_path, alone, keys):
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = wlan(first, "--keys", str(keys), "--elsewhere", "ap_2")
    killed = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    left = by_hand(first / "fleet" / "fleet.json", tmp_path / "there")
    try:
        wait_for(lambda: logged(first) >= 4)
        killed.kill()
        killed.wait(20)
        time.sleep(6.0)  # by now, its own agents have ended too
        again = [str(second) if argument == str(first) else argument for argument in arguments]  # with the same port
        ended = swarmbo(*again)  # an earlier version waited for ten minutes
        assert ended.returncode == 0, ended.stderr
        assert left.wait(20) == 0
    finally:
        for process in (killed, left):
            process.kill()
            process.wait(20)
    assert points(second) == points(alone)


class Timed:
    """A fleet of robots with a deadline, in which robot_3 can be started by hand."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.out, self.log, self.until = folder / "run", folder / "output", time.monotonic() + 600
        timed = ["--set=coordination.kind=max-sum", "--set=coordination.mode=asynchronous", "--set=rounds=400"]
        fleet = ["fleet", "robots", *timed, *more, "--out", str(self.out), "--port", str(free_port())]
        with self.log.open("wb") as output:
            self.processes = [subprocess.Popen(command(*fleet, "--no-figures", "-q"), stdout=output, stderr=output)]

    def start(self) -> None:
        own = command("agent", "robot_3", "--fleet", str(self.out / "fleet" / "fleet.json"))
        self.processes.append(subprocess.Popen(own))

    def absent(self) -> list[list[str]]:
        """Absent agents by round."""
        path = self.out / "network.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        return [json.loads(line)["absent"] for line in lines if line.endswith("\n")]

    def require(self, what) -> None:
        """Wait until a condition holds."""
        while not (found := what()) and self.processes[0].poll() is None and time.monotonic() < self.until:
            time.sleep(0.1)
        assert found, self.log.read_text()


@pytest.fixture
def timed(tmp_path):
    made = list[Timed]()

    def make(*more: str) -> Timed:
        made.append(Timed(tmp_path, *more))
        return made[-1]

    yield make
    for process in made[0].processes:
        process.terminate()
        process.wait(60)


def test_by_a_deadline_a_fleet_continues_without_an_agent_killed_repeatedly_and_readmits_it(timed):
    fleet, killed = timed(), set[str]()
    pid = fleet.out / "fleet" / "robot_3" / "pid"

    def kill() -> bool:
        found = pid.read_text().strip() if len(fleet.absent()) > 2 and pid.is_file() else ""
        if found and found not in killed:
            os.kill(int(found), signal.SIGKILL)
            killed.add(found)
        return len(killed) == 4

    fleet.require(kill)
    fleet.require(lambda: ["robot_3"] in fleet.absent())
    fleet.start()
    fleet.require(lambda: fleet.absent()[-1] == [])


def test_by_a_deadline_agents_with_their_own_beliefs_continue_without_a_killed_one_and_readmit_it(timed):
    fleet = timed("--set=belief.kind=fused", "--elsewhere", "robot_3", "--patience", "15")
    fleet.require((fleet.out / "fleet" / "fleet.json").is_file)
    fleet.start()
    fleet.require(lambda: len(fleet.absent()) > 3 and fleet.absent()[-1] == [])
    fleet.processes[-1].kill()
    fleet.require(lambda: fleet.absent()[-1] == ["robot_3"])
    fleet.start()
    fleet.require(lambda: fleet.absent()[-1] == [])


def test_an_agent_elsewhere_measures_with_the_function_of_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "guide" / "processes.md").read_text()
    code = page.partition("# depth.py")[2].partition("```")[0]
    (tmp_path / "depth.py").write_text(f"#{code}")
    out, agents = tmp_path / "run", list[subprocess.Popen[bytes]]()
    fleet = ["fleet", "robots", "--set=rounds=3", "--out", str(out), "--port", str(free_port())]

    def start() -> None:
        plan = out / "fleet" / "fleet.json"
        wait_for(plan.is_file)
        own = command("agent", "robot_3", "--fleet", str(plan))
        for more in ([], ["--measure", "depth:measure"]):
            refused = subprocess.run([*own, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert refused.returncode == 2
            assert ("wanted --trust" if more else "got no instrument for 'robot_3'") in refused.stderr
        agents.append(subprocess.Popen([*own, "--measure", "depth:measure", "--trust"], cwd=tmp_path))

    beside(start, *fleet, "--measures", "robot_3", "--no-figures", "-q")
    assert agents[0].wait(20) == 0
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    own = [sample for line in rounds for sample in line["samples"] if sample["agent"] == "robot_3"]
    assert len(own) == 4
    for sample in own:
        x, y = sample["location"]
        assert sample["measurement"] == (None if y > 11_000.0 else 300.0 + 0.05 * x)
    assert all(line["source"]["by_agents"] == ["robot_3"] for line in rounds[1:])


def test_a_killed_run_resumes_with_the_measurements_of_its_agent_elsewhere(tmp_path):
    place = '(__import__("pathlib").Path(__file__).parent / "places").open("a").write(f"{list(location)}\\n")'
    (tmp_path / "depth.py").write_text(f"def measure(location):\n    {place}\n    return float(location[0])\n")
    out, port, own = tmp_path / "run", str(free_port()), dict[Path, list[float]]()
    for folder in (out, tmp_path / "whole"):
        fleet = command("fleet", "robots", "--set=rounds=6", "--no-figures", "-q", "--port", port, "--out", str(folder))
        coordinator = subprocess.Popen([*fleet, "--measures", "robot_3"])
        wait_for((folder / "fleet" / "fleet.json").is_file)
        agent = command("agent", "robot_3", "--fleet", str(folder / "fleet" / "fleet.json"))
        measuring = subprocess.Popen([*agent, "--measure", "depth:measure", "--trust"], cwd=tmp_path)
        if folder == out:
            wait_for(lambda: logged(out) > 2)
            coordinator.kill()
            coordinator.wait()
            resumed = swarmbo("resume", str(out), "--no-figures", "-q")
            assert resumed.returncode == 0, resumed.stderr
            assert "waiting for robot_3" in resumed.stderr
        assert coordinator.wait(200) == (-signal.SIGKILL if folder == out else 0)
        assert measuring.wait(20) == 0
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        samples = [sample for line in rounds for sample in line["samples"] if sample["agent"] == "robot_3"]
        own[folder] = [sample["location"] for sample in samples]
        assert [sample["measurement"] for sample in samples] == [place[0] for place in own[folder]]
    assert own[out] == own[tmp_path / "whole"]
    assert len(own[out]) == 7
    assert len((tmp_path / "places").read_text().splitlines()) <= 2 * 7 + 1  # the kill may interrupt a round


class Three:
    """The hub, an agent, and a third party, which may be an attacker."""

    def __init__(self, folder: Path, protocol: str) -> None:
        make_keys(folder / "keys", dict.fromkeys([HUB, "a", "b"], "127.0.0.1"))
        ends = endpoints_of(["a", "b"], protocol, free_port())  # pyright: ignore[reportArgumentType]
        self.plan = Plan(run="three", endpoints=ends, problem={}, settings={}, keys=str(folder / "keys"))
        self.hub, self.a = Link(HUB, self.plan), Link("a", self.plan)

    def without_access_control(self):
        """Session settings without access control."""
        return {name: value for name, value in session_settings("b", self.plan).items() if name != "access_control"}

    def close(self) -> None:
        self.hub.close()
        self.a.close()


@pytest.fixture(params=["tls", "quic"])
def three(tmp_path, request):
    made = Three(tmp_path, request.param)
    yield made
    made.close()


def session(settings):
    config = zenoh.Config()
    for path, value in settings.items():
        config.insert_json5(path, json.dumps(value))
    return zenoh.open(config)


def intercepted(session) -> list[bytes]:
    """Messages that a subscriber to all keys receives."""
    messages: list[bytes] = []
    for key in ("swarmbo/**", "swarmbo/three/b/*"):
        session.declare_subscriber(key, lambda sample: messages.append(bytes(sample.payload)))
    return messages


def received(link: Link, seconds: float = 2.0) -> list[tuple[str, bytes]]:
    found = []
    while (parcel := link.wait(seconds)) is not None:
        found.append(parcel)
    return found


def arrives(sender: Link, recipient: Link) -> bool:
    """True if messages arrive after the connection is made."""
    for _ in range(50):
        sender.send(recipient.name, b"hello")
        if recipient.wait(0.2) is not None:
            received(recipient, 0.3)
            return True
    return False


def test_the_owner_of_a_key_can_neither_send_as_another_nor_receive_messages_of_others(three):
    with session(three.without_access_control()) as attacker:
        output = intercepted(attacker)
        assert arrives(three.hub, three.a)
        for _ in range(30):
            attacker.put("swarmbo/three/a/b", b"in its own name")
            if (parcel := three.a.wait(0.2)) is not None:
                break
        assert parcel == ("b", b"in its own name")  # so it is connected
        for run in ("three", "join"):
            attacker.put(f"swarmbo/{run}/a/world", b"as the hub")
        three.hub.send("a", b"a secret")
        three.hub.send("b", b"for b")
        found = received(three.a)
    assert ("world", b"as the hub") not in found
    assert ("world", b"a secret") in found
    assert b"for b" in output
    assert b"a secret" not in output


def test_a_sender_with_keys_of_another_authority_is_not_connected(three, tmp_path):
    make_keys(tmp_path / "other", {"b": "127.0.0.1"})  # of another authority
    settings = three.without_access_control()
    own = {
        kind: path.replace("/keys/", "/other/") if isinstance(path, str) and not kind.startswith("root") else path
        for kind, path in settings["transport/link/tls"].items()
    }
    settings["transport/link/tls"] = own
    with session(settings) as stranger:
        output = intercepted(stranger)
        assert arrives(three.hub, three.a)
        for _ in range(20):
            stranger.put("swarmbo/three/a/b", b"let me in")
            three.hub.send("b", b"for b")
            time.sleep(0.1)
        found = received(three.a, 0.5)
        assert list(stranger.info.peers_zid()) == []
    assert found == []
    assert set(output) == {b"let me in"}  # only its own messages


def test_a_burst_of_messages_arrives_without_repetition(three):
    """Zenoh drops messages if a link's queue is full, and a repeated message is 0.2 s late."""
    assert arrives(three.hub, three.a)
    for _ in range(20):
        for n in range(12):
            three.hub.send("a", bytes([n]) * 2000)
        assert [content[0] for _, content in received(three.a, 0.3)] == list(range(12))

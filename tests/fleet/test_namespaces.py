"""A fleet whose members run in separate network namespaces, behind a lossy switch with delays: ``-m fleet``.

The test makes the namespaces, each with a TUN device. The switch is a thread of the test, because some kernels
lack ``netem``. Measured times are printed (``-s``).
"""

import heapq
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

pytestmark = pytest.mark.fleet

AGENTS = [f"sensor_{n}" for n in range(4)]
MEMBERS = ["world", *AGENTS]
HOSTS = {name: f"10.77.0.{n}" for n, name in enumerate(MEMBERS, start=1)}
LONGEST_PACKET = 1400
SETTINGS = [
    "--set=environment.sensors=4",
    "--set=environment.energy_price=0",
    "--set=environment.field={gp={lengthscale_m=600.0,seed=0}}",
    '--set=belief={kind="exact",restarts=0,refit_every=40}',
    "--set=acquisition.candidates=4",
]
INSIDE = """
import fcntl, os, socket, struct, subprocess, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"fleet0", 0x1001))  # TUNSETIFF: a TUN device, whole packets
for command in ("addr add {0}/24 dev fleet0", "link set fleet0 mtu {1} up", "link set lo up"):
    subprocess.run(["ip", *command.format(*sys.argv[2:]).split()], check=True, capture_output=True)
with socket.socket(socket.AF_UNIX) as parent:
    parent.connect(sys.argv[1])
    socket.send_fds(parent, [b"x"], [tun])
os.read(0, 1)
"""


class Namespace:
    """A network namespace with one TUN device, whose packets this process reads and writes."""

    def __init__(self, address: str, folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            path = folder / f"{address}.socket"
            listening.bind(str(path))
            listening.listen(1)
            listening.settimeout(10.0)
            self._holder = subprocess.Popen(
                ["unshare", "--net", sys.executable, "-c", INSIDE, str(path), address, str(LONGEST_PACKET)],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.tun = self._tun_of(listening)
        self.address = socket.inet_aton(address)

    def _tun_of(self, listening: socket.socket) -> int:
        while True:
            if select.select([listening], [], [], 0.1)[0]:
                with listening.accept()[0] as child:
                    return socket.recv_fds(child, 1, 1)[1][0]
            if self._holder.poll() is not None:
                assert self._holder.stderr is not None
                raise PermissionError(" ".join(self._holder.stderr.read().split())[-200:])

    def start(self, command: list[str], **more) -> "subprocess.Popen[str]":
        """Start a process in the namespace."""
        inside = ["nsenter", "--target", str(self._holder.pid), "--net", *command]
        return subprocess.Popen(inside, text=True, **more)

    def close(self) -> None:
        os.close(self.tun)
        self._holder.communicate()


class Switch:
    """Forwards packets between namespaces with losses and delays.

    Args:
        namespaces: The connected namespaces.
        loss: Share of packets that are lost.
        delay: Least and largest delay of a packet in seconds.
    """

    def __init__(self, namespaces: list[Namespace], loss: float, delay: tuple[float, float]) -> None:
        self._by_address = {one.address: one.tun for one in namespaces}
        self._loss, self._delay, self._rng = loss, delay, random.Random(0)
        self.counts, self._ended = Counter[str](), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        in_transit: list[tuple[float, int, int, bytes]] = []
        while not self._ended.is_set():
            wait = max(0.0, in_transit[0][0] - time.monotonic()) if in_transit else 0.1
            for tun in select.select(list(self._by_address.values()), [], [], min(wait, 0.1))[0]:
                packet = os.read(tun, 2 * LONGEST_PACKET)
                to = self._by_address.get(packet[16:20])
                if to is None or packet[0] >> 4 != 4:
                    continue
                self.counts["packets"] += 1
                if self._rng.random() < self._loss:
                    self.counts["lost"] += 1
                    continue
                when = time.monotonic() + self._rng.uniform(*self._delay)
                heapq.heappush(in_transit, (when, self.counts["packets"], to, packet))
            while in_transit and in_transit[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(in_transit)
                os.write(to, packet)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def namespaces(tmp_path):
    if missing := [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]:
        pytest.skip(f"needs {missing[0]!r} (util-linux, iproute2) to make namespaces")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun may not be opened: namespaces need root, or CAP_SYS_ADMIN and CAP_NET_ADMIN")
    with ExitStack() as stack:
        made = {}
        for name, address in HOSTS.items():
            try:
                made[name] = stack.enter_context(closing(Namespace(address, tmp_path)))
            except PermissionError as error:
                pytest.skip(f"network namespaces are not permitted here: {error}")
        yield made


def swarmbo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "swarmbo", *arguments]


class InNamespaces:
    """One run of a fleet: the hub, and agents that restart after kills."""

    def __init__(self, folder: Path, namespaces: dict[str, Namespace], rounds: int) -> None:
        self.folder, self._namespaces, self.rounds = folder, namespaces, rounds
        hosts = [f"--host={name}={address}" for name, address in HOSTS.items()]
        run = ["field", *SETTINGS, f"--set=rounds={rounds}"]
        made = subprocess.run(
            swarmbo("fleet", "keys", *run[:1], str(folder / "keys"), *run[1:], *hosts),
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        elsewhere = [f"--elsewhere={agent}" for agent in AGENTS]
        keys = ["--keys", str(folder / "keys"), "--protocol", "quic"]
        fleet = swarmbo("fleet", *run, "--out", str(folder / "run"), *hosts, *elsewhere, *keys, "--no-figures", "-q")
        self.hub = namespaces["world"].start(fleet, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        plan = folder / "run" / "fleet" / "fleet.json"
        until = time.monotonic() + 60.0
        while not plan.is_file() and self.hub.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        self._member = ["--fleet", str(plan), "--keys", str(folder / "keys")]
        self.agents = {agent: self.start(agent) for agent in AGENTS}

    def start(self, agent: str) -> "subprocess.Popen[str]":
        return self._namespaces[agent].start(swarmbo("agent", agent, *self._member))

    @property
    def logged(self) -> int:
        log = self.folder / "run" / "rounds.jsonl"
        return log.read_text().count("\n") - 1 if log.is_file() else 0

    def killed(self, agent: str, after: int) -> None:
        """Kill an agent during the run, and start it again."""
        while self.logged < after and self.hub.poll() is None:
            dead = [name for name, process in self.agents.items() if process.poll() is not None]
            assert not dead
            time.sleep(0.05)
        self.agents[agent].send_signal(signal.SIGKILL)
        self.agents[agent].wait()
        self.agents[agent] = self.start(agent)

    def ended(self, seconds: float) -> str:
        """Wait for the end; return the line of the command about the network."""
        _, errors = self.hub.communicate(timeout=seconds)
        assert self.hub.returncode == 0, errors
        for process in self.agents.values():
            assert process.wait(30) == 0
        return next(line for line in errors.splitlines() if line.startswith("network: "))

    def close(self) -> None:
        for process in (self.hub, *self.agents.values()):
            if process.poll() is None:
                process.kill()
                process.wait()


def places(folder: Path) -> list[list[object]]:
    """Agents, places and measurements by round."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [[(s["agent"], s["target"], s["measurement"]) for s in json.loads(line)["samples"]] for line in lines]


def deciding(folder: Path) -> np.ndarray:
    """Duration of each decision in seconds."""
    lines = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    return np.array([line["decide"] for line in lines if line["round"] > 0])


@pytest.mark.parametrize(
    ("rounds", "loss", "delay", "kill"),
    [
        pytest.param(40, 0.0, (0.0, 0.0), None, id="clean"),
        pytest.param(200, 0.3, (0.005, 0.015), 90, id="30 % lost, 5 to 15 ms, one killed"),
    ],
)
def test_members_in_separate_namespaces_decide_as_one_process_does(
    tmp_path, namespaces, capsys, rounds, loss, delay, kill
):
    switch = Switch(list(namespaces.values()), loss, delay)
    fleet = InNamespaces(tmp_path, namespaces, rounds)
    try:
        if kill is not None:
            fleet.killed(AGENTS[2], kill)
        network = fleet.ended(1500.0)
    finally:
        fleet.close()
        switch.close()
    own = ["field", *SETTINGS, f"--set=rounds={rounds}", "--out", str(tmp_path / "alone"), "--no-figures", "-q"]
    alone = subprocess.run(swarmbo("run", *own), capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stderr
    assert places(tmp_path / "run") == places(tmp_path / "alone")  # so all decisions are valid
    took, before = deciding(tmp_path / "run")[1:], deciding(tmp_path / "alone")[1:]
    figures = (
        f"{len(took)} decisions: median {np.median(took):.3f} s, 95 % within {np.quantile(took, 0.95):.3f} s, largest "
        f"{took.max():.3f} s; in one process median {np.median(before):.3f} s; {dict(switch.counts)}; {network}"
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{figures}\n")

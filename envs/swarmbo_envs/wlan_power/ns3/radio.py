"""ns-3 as a radio of the WLAN: compiled once for the installed wheel, and run in child processes."""

import hashlib
import importlib.metadata
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo_envs.shared import Ends, Values
from swarmbo_envs.wlan_power.network import Network
from swarmbo_envs.wlan_power.ns3.children import Children, Failure
from swarmbo_envs.wlan_power.settings import SimulationSettings, whole_channel
from swarmbo_envs.wlan_power.topology import LOSS_AT_ONE_METRE_DB, LOSS_PER_DECADE_DB, Topology

_SOURCE = Path(__file__).with_name("wlan_downlink.cc")
_PARTS = ("wifi", "spectrum", "energy", "mobility", "propagation", "network", "core")
_FLAGS = ("-std=c++20", "-O2", "-shared", "-fPIC")
_COMPILERS = ("g++", "c++", "clang++")
_COMPILE_S = 600.0
_AT = "$.radio"
_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True)
class Library:
    """Library that a child process loads; ``needs`` is the folder of ns-3's own libraries."""

    path: Path
    needs: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a process that can load it."""
        name = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
        others = [os.environ[name]] if os.environ.get(name) else []
        return {**os.environ, name: os.pathsep.join([str(self.needs), *others])}


def compiled_library() -> Library:
    """Library from the cache, or compiled now in some seconds.

    The cache is ``$XDG_CACHE_HOME/swarmbo`` or ``~/.cache/swarmbo``; ``$CXX`` names a compiler. Raises a ConfigError if
    the wheel, a compiler or the headers of C++ are missing, or the cache cannot be written.
    """
    version, root = _wheel()
    needs = next((folder for folder in (root / "lib64", root / "lib") if folder.is_dir()), root)
    key = "\0".join([version, platform.system(), platform.machine(), *_FLAGS, *_PARTS]).encode()
    digest = hashlib.blake2b(_SOURCE.read_bytes() + key, digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swarmbo"
    path = cache / f"wlan-ns3-{version}-{digest}.so"
    if not path.is_file():
        _compile(path, root / "include", needs)
    return Library(path, needs, version)


def _wheel() -> tuple[str, Path]:
    """Version of the installed wheel and its folder, found without importing it, which takes ten seconds."""
    try:
        wheel = importlib.metadata.distribution("ns3")
    except importlib.metadata.PackageNotFoundError:
        got = "'ns3' needs the package 'ns3', which is not installed"
        raise ConfigError(f'{got}; pip install "swarmbo[ns3]"', at=_AT) from None
    root = Path(str(wheel.locate_file("ns3")))
    if not (root / "include" / "ns3" / "wifi-module.h").is_file():
        got = f"'ns3' needs the headers of ns-3's wifi module; wanted them in {root / 'include'}"
        raise ConfigError(f"{got}; pip install --force-reinstall ns3", at=_AT)
    return wheel.version, root


def _compiler() -> str:
    stated = os.environ.get("CXX", "")
    for name in [stated] if stated else _COMPILERS:
        if found := shutil.which(name):
            return found
    tried = f"$CXX, {stated!r}," if stated else ", ".join(_COMPILERS)
    got = f"'ns3' compiles a small C++ file once, and found no compiler ({tried} not found)"
    raise ConfigError(f"{got}; install one, such as by `apt install g++`", at=_AT)


def _compile(path: Path, include: Path, needs: Path) -> None:
    """Compile next to the final path and rename, so that concurrent processes do not collide."""
    compiler = _compiler()
    versioned = next(iter(needs.glob("libns3*-core*")), None)
    if versioned is None:
        raise ConfigError(f"'ns3' needs ns-3's libraries; wanted libns3*-core in {needs}", at=_AT)
    prefix = versioned.name.removeprefix("lib").partition("-core")[0]
    suffix = versioned.name.partition("-core")[2].partition(".")[0]  # of a build profile, where there is one
    links = [f"-l{prefix}-{part}{suffix}" for part in _PARTS]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            library = Path(folder) / path.name
            command = [compiler, *_FLAGS, f"-I{include}", str(_SOURCE), "-o", str(library), f"-L{needs}", *links]
            options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
            compiled = subprocess.run(command, timeout=_COMPILE_S, check=False, **options)
            if compiled.returncode != 0:
                raise ConfigError(_reason(compiler, compiled.stderr), at=_AT)
            library.replace(path)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"got no library from {compiler} within {_COMPILE_S:g} s; try again", at=_AT) from None
    except OSError as error:
        got = f"cannot keep the compiled part in {path.parent}: {error.strerror or error}"
        raise ConfigError(f"{got}; set XDG_CACHE_HOME to a folder that can be written", at=_AT) from None


def _reason(compiler: str, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if "error" in line.lower()] or output.split("\n")[-1:]
    first = " ".join(lines[0].split())[:200] if lines else "it says nothing"
    if ("No such file" in first or "file not found" in first) and "ns3/" not in first:
        return f"{compiler} finds no standard headers of C++ ({first}); install them, such as by `apt install g++`"
    return f"{compiler} cannot compile ns-3's part: {first}"


class Ns3Radio:
    """Outcomes of access points by ns-3, which runs in child processes.

    ``capacity`` is that of ``Network`` with the SINR of the received powers in ns-3. ``throughput`` is the payload that
    users of an 802.11n network receive in the simulated time (802.11ac if there are widths above 40 MHz). Every access
    point always has 1500-byte frames for each of its users, and disturbs every other whose channel overlaps.
    """

    def __init__(self, objective: Literal["capacity", "throughput"], settings: SimulationSettings) -> None:
        self.objective, self.settings = objective, settings
        library = compiled_library()
        self.version = library.version
        limits: dict[str, Any] = {"processes": settings.processes, "timeout_s": settings.timeout_s}
        command = [sys.executable, "-I", str(_CHILD), str(library.path)]
        self._children = Children(command, environment=library.environment, is_answer=_is_answer, **limits)
        if (failure := self._children.start()) is not None:
            raise ConfigError(f"ns-3 does not start: {failure.reason}", at="$.radio")

    @property
    def source(self) -> dict[str, Any]:
        """Source of outcomes: ns-3's version, its first run, and the number of runs in each mean."""
        return {"ns3": self.version, "run": self.runs[0], "runs": len(self.runs)}

    @property
    def runs(self) -> list[int]:
        """Numbers of the ns-3 runs over which an outcome is averaged; a single run if nothing is random."""
        first = self.settings.run
        return [first] if self.objective == "capacity" else list(range(first, first + self.settings.runs))

    def user_rates(
        self, network: Network, topology: Topology, users: Ends, point: Values
    ) -> Float[np.ndarray, "runs m"] | Failure:
        """Rates of users at locations (m, 2) for a joint setting, in each run, Mbit/s (0 if absent); or the failure."""
        rates = np.zeros((len(self.runs), len(network.present)))
        if not network.present.any():
            return rates
        question, planned = self._question(network, topology, users, point), network.on(point[network.n_points :])
        for row, answer in zip(rates, self._children.ask([{**question, "run": run} for run in self.runs]), strict=True):
            if isinstance(answer, Failure):
                return answer
            if self.objective == "throughput":
                row[network.present] = answer["mbps"]
            else:
                sinr = np.zeros(len(row))
                sinr[network.present] = answer["sinr"]
                row[:] = planned.rates(sinr)
        return rates

    def close(self) -> None:
        """End the child processes; the next question starts new processes."""
        self._children.close()

    def _question(self, network: Network, topology: Topology, users: Ends, point: Values) -> dict[str, Any]:
        present, settings, k = network.present, self.settings, network.n_points
        spectrum, channel_numbers = network.spectrum, [(0, 0)] * k
        if spectrum is not None:
            channel_numbers = [whole_channel(*chosen) for chosen in spectrum.chosen(point[k:])]
        planned = network.on(point[k:])
        widths = np.ones(k) if planned.widths is None else planned.widths
        return {
            "objective": self.objective,
            "points": network.n_points,
            "users": int(present.sum()),
            "point_xy": topology.access_points.ravel().tolist(),
            "user_xy": users[present].ravel().tolist(),
            "serving": network.serving[present].tolist(),
            "power_dbm": point[:k].tolist(),
            "to_users_db": topology.to_users_db[:, present].ravel().tolist(),
            "between_db": topology.between_db.ravel().tolist(),
            "disturbs": planned.disturbs.astype(float).ravel().tolist(),
            "width_mhz": (network.bandwidth_mhz * widths).tolist(),
            "channel": [number for number, _ in channel_numbers],
            "primary": [place for _, place in channel_numbers],
            "loss_at_one_metre_db": LOSS_AT_ONE_METRE_DB,
            "loss_per_decade_db": LOSS_PER_DECADE_DB,
            "noise_dbm": 10.0 * math.log10(network.noise_mw),
            "bandwidth_mhz": network.bandwidth_mhz,
            **{name: getattr(settings, name) for name in ("user_power_dbm", "warm_up_s", "seconds")},
        }


def _is_answer(question: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """True for one finite nonnegative number per user."""
    values: Sequence[Any] | Any = answer.get("mbps" if question["objective"] == "throughput" else "sinr")
    if not isinstance(values, list) or len(values) != question["users"]:
        return False
    return all(isinstance(value, int | float) and math.isfinite(value) and value >= 0.0 for value in values)

"""The C++ part: compiled once against the wheel that the user installed, and kept in the user's cache."""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from swarmbo.errors import ConfigError

_SOURCE = Path(__file__).with_name("wlan_downlink.cc")
_PARTS = ("wifi", "spectrum", "energy", "mobility", "propagation", "network", "core")
_FLAGS = ("-std=c++20", "-O2", "-shared", "-fPIC")
_COMPILERS = ("g++", "c++", "clang++")
_COMPILE_S = 600.0
_AT = "$.radio"


@dataclass(frozen=True)
class Library:
    """What a child process loads.

    Args:
        path: The shared library.
        needs: Folder of ns-3's own libraries, for the dynamic linker.
        version: Of the wheel, such as ``3.44.post0``.
    """

    path: Path
    needs: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that can load it."""
        name = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
        others = [os.environ[name]] if os.environ.get(name) else []
        return {**os.environ, name: os.pathsep.join([str(self.needs), *others])}


def compiled_library() -> Library:
    """The library, from the cache or compiled now, which takes some seconds.

    It lies in ``$XDG_CACHE_HOME/swarmbo`` or ``~/.cache/swarmbo``, under a name made from the source, the version of
    the wheel and the kind of machine. No compiler is needed once it is there; ``$CXX`` names one that is not found by
    itself.

    Raises:
        ConfigError: If the wheel, a compiler or the standard headers of C++ are missing, with what to install; or if
            the cache cannot be written.
    """
    version, root = _wheel()
    needs = next((folder for folder in (root / "lib64", root / "lib") if folder.is_dir()), root)
    key = "\0".join([version, platform.system(), platform.machine(), *_FLAGS, *_PARTS]).encode()
    digest = hashlib.blake2b(_SOURCE.read_bytes() + key, digest_size=8).hexdigest()
    path = cache_folder() / f"wlan-ns3-{version}-{digest}.so"
    if not path.is_file():
        _compile(path, root / "include", needs)
    return Library(path, needs, version)


def cache_folder() -> Path:
    """Where compiled libraries are kept."""
    stated = os.environ.get("XDG_CACHE_HOME")
    return (Path(stated) if stated else Path.home() / ".cache") / "swarmbo"


def _wheel() -> tuple[str, Path]:
    """Version of the installed wheel and its folder, found without importing it, which takes ten seconds."""
    try:
        wheel = importlib.metadata.distribution("ns3")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            "'ns3' needs the package 'ns3', which is not installed; pip install swarmbo[ns3]", at=_AT
        ) from None
    root = Path(str(wheel.locate_file("ns3")))
    if not (root / "include" / "ns3" / "wifi-module.h").is_file():
        raise ConfigError(
            f"'ns3' needs the headers of ns-3's wifi module; wanted them in {root / 'include'}; "
            "pip install --force-reinstall ns3",
            at=_AT,
        )
    return wheel.version, root


def _compiler() -> str:
    stated = os.environ.get("CXX", "")
    for name in [stated] if stated else _COMPILERS:
        if found := shutil.which(name):
            return found
    tried = f"$CXX, {stated!r}," if stated else ", ".join(_COMPILERS)
    raise ConfigError(
        f"'ns3' compiles a small C++ file once, and no compiler is there ({tried} not found); install one, "
        "such as by `apt install g++`",
        at=_AT,
    )


def _compile(path: Path, include: Path, needs: Path) -> None:
    """Compile beside the final place and rename, so that processes that do this at the same time do not meet."""
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
            made = Path(folder) / path.name
            command = [compiler, *_FLAGS, f"-I{include}", str(_SOURCE), "-o", str(made), f"-L{needs}", *links]
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_COMPILE_S, check=False
            )
            if done.returncode != 0:
                raise ConfigError(_reason(compiler, done.stderr), at=_AT)
            made.replace(path)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"got no library from {compiler} within {_COMPILE_S:g} s; try again", at=_AT) from None
    except OSError as error:
        raise ConfigError(
            f"cannot keep the compiled part in {path.parent}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a folder that can be written",
            at=_AT,
        ) from None


def _reason(compiler: str, told: str) -> str:
    """One line for what a compiler said."""
    lines = [line.strip() for line in told.splitlines() if "error" in line.lower()] or told.split("\n")[-1:]
    first = " ".join(lines[0].split())[:200] if lines else "it says nothing"
    if ("No such file" in first or "file not found" in first) and "ns3/" not in first:
        return f"{compiler} finds no standard headers of C++ ({first}); install them, such as by `apt install g++`"
    return f"{compiler} cannot compile ns-3's part: {first}"

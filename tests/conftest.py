"""What all tests run under.

One thread per linear-algebra call: on small matrices more threads only wait for each other. Hypothesis draws the same
examples every time; ``--hypothesis-profile=default`` draws others.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)  # no test asserts a time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


COMPILE = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run, unless others are asked for; and compiled code, made before workers start."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("repeatable")
    is_worker = hasattr(config, "workerinput")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a hundred processes would compile every module
    sys.dont_write_bytecode = False
    if not is_worker and config.getoption("numprocesses", default=None):  # else each of them would compile it all
        root = config.rootpath
        files = [path.relative_to(root) for path in sorted(Path(root, "swarmbo").rglob("*.py"))]
        compiled = [file for file in files if "@numba.njit" in Path(root, file).read_text(encoding="utf-8")]
        names = [".".join(file.with_suffix("").parts) for file in compiled]
        subprocess.run([sys.executable, "-c", COMPILE, *names], cwd=root, check=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, and what needs ns-3 or a network, unless it is asked for."""
    left_out = [
        marker for marker in ("fleet", "ns3", "ray", "slow", "thorough") if marker not in config.getoption("-m")
    ]
    unwanted = {item for item in items if any(map(item.get_closest_marker, left_out))}
    if unwanted:
        config.hook.pytest_deselected(items=list(unwanted))
        items[:] = [item for item in items if item not in unwanted]

"""Settings of all test runs.

One thread per linear-algebra call: on small matrices more threads only wait for each other. Hypothesis draws the same
examples every time; ``--hypothesis-profile=many`` draws others, and twenty times as many.
"""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=15)  # no test asserts a time
settings.register_profile("many", deadline=None, max_examples=300)

gc.set_threshold(50_000)
os.fsync = lambda fd: None  # no test simulates a power failure

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


COMPILE = """
import sys, importlib
for value in [value for name in sys.argv[1:] for value in vars(importlib.import_module(name)).values()]:
    getattr(value, "__dict__", {}).get("_compile_for_args", int)()  # of functions compiled for a signature
"""


def compile_ahead(root: Path) -> None:
    """Compile all functions that have a signature, in one process per processor."""
    files = [path for path in Path(root, "swarmbo").rglob("*.py") if "@compiled(" in path.read_text(encoding="utf-8")]
    names = [".".join(file.relative_to(root).with_suffix("").parts) for file in sorted(files)]
    count = min(os.cpu_count() or 1, len(names))
    commands = [[sys.executable, "-c", COMPILE, *names[n::count]] for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(partial(subprocess.run, cwd=root, check=True), commands))


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same examples in every run unless a profile is chosen; compile code before workers start."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("repeatable")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a hundred processes would compile every module
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", default=None):  # once for all workers
        compile_ahead(config.rootpath)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, and tests that need ns-3 or a network, unless ``-m`` names their mark."""
    asked = config.getoption("-m")

    def is_unwanted(item: pytest.Item) -> bool:
        marks = {mark.name for mark in item.iter_markers()}
        needs = marks & {"fleet", "ns3", "ray", "slow"} or marks & {"thorough"}  # slow cases of thorough tests: slow
        return any(name not in asked for name in needs)

    unwanted = set(filter(is_unwanted, items))
    config.hook.pytest_deselected(items=list(unwanted))
    items[:] = [item for item in items if item not in unwanted]
    gc.freeze()  # garbage collection skips what was imported and collected

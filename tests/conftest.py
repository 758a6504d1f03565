"""What all tests run under.

One thread per linear-algebra call: on small matrices more threads only wait for each other. Hypothesis draws the same
examples every time; ``--hypothesis-profile=default`` draws others.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run, unless others are asked for."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that need ns-3 out unless they are asked for: it is half a gigabyte, and compiles something."""
    if "ns3" in config.getoption("-m"):
        return
    wanted = [item for item in items if item.get_closest_marker("ns3") is None]
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted

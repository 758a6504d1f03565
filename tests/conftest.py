"""What all tests run under.

One thread per linear-algebra call: on small matrices more threads only wait for each other. Hypothesis draws the same
examples every time; ``--hypothesis-profile=default`` draws others.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)  # no test asserts a time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run, unless others are asked for."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, and what needs ns-3 or a network, unless it is asked for."""
    left_out = [marker for marker in ("fleet", "ns3", "slow", "thorough") if marker not in config.getoption("-m")]
    unwanted = {item for item in items if any(map(item.get_closest_marker, left_out))}
    if unwanted:
        config.hook.pytest_deselected(items=list(unwanted))
        items[:] = [item for item in items if item not in unwanted]

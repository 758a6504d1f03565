import subprocess
import sys

import msgspec
import numpy as np
import pytest
from PIL import Image

from swarmbo.plotting import World, write_figures
from swarmbo.records import Traffic
from swarmbo.spaces import Domain


def test_all_figures_of_a_run_are_written(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    written = write_figures(made.records, made.world, made.settings, tmp_path / "figures")
    assert [path.name for path in written] == ["belief.png", "regret.png", "traffic.png", "faults.png", "run.gif"]
    for path in written:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_without_a_plane_there_are_no_maps(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    world = World(Domain(np.zeros(1), np.ones(1)))
    written = write_figures(made.records, world, made.settings, tmp_path)
    assert [path.name for path in written] == ["regret.png", "traffic.png", "faults.png"]


def test_without_traffic_there_is_no_figure_of_it(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    silent = [msgspec.structs.replace(record, sharing=Traffic(), report=None) for record in made.records]
    world = World(Domain(np.zeros(1), np.ones(1)))
    assert [path.name for path in write_figures(silent, world, None, tmp_path)] == ["regret.png", "faults.png"]


def test_without_rounds_nothing_is_written(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    assert write_figures([], made.world, made.settings, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


@pytest.mark.thorough
def test_figures_leave_pyplot_and_its_settings_alone(tmp_path):
    code = """
import sys, matplotlib
before = matplotlib.rcParams.copy()  # dict() would look up the backend, which loads pyplot
import numpy as np
from swarmbo import plotting
from swarmbo.belief import ExactGPSettings
from swarmbo.records import RoundRecord, Sample
from swarmbo.records import Traffic
from swarmbo.spaces import Domain
from pathlib import Path
records = [RoundRecord(0, [Sample("robot_0", [0.2, 0.4], None)]), RoundRecord(1, [Sample("robot_0", [0.3, 0.4], None)])]
world = plotting.World(Domain(np.zeros(2), np.ones(2)))
plotting.write_figures(records, world, ExactGPSettings(), Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True, timeout=120)

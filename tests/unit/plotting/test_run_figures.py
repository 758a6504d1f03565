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


def test_without_a_plane_traffic_or_rounds_there_is_no_figure_of_it(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    assert write_figures([], made.world, made.settings, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()
    world = World(Domain(np.zeros(1), np.ones(1)))
    silent = [msgspec.structs.replace(record, sharing=Traffic(), report=None) for record in made.records]
    for records, figures in ((made.records, "regret traffic faults"), (silent, "regret faults")):
        written = write_figures(records, world, made.settings, tmp_path)
        assert [path.stem for path in written] == figures.split()


CODE = """
import sys, matplotlib
before = matplotlib.rcParams.copy()  # dict() would look up the backend, which loads pyplot
import numpy as np
from swarmbo import plotting
from swarmbo.belief import ExactGPSettings
from swarmbo.records import RoundRecord, Sample
from swarmbo.spaces import Domain
from pathlib import Path
records = [RoundRecord(n, [Sample("robot_0", [0.1 * n, 0.4], None)]) for n in range(2)]
world = plotting.World(Domain(np.zeros(2), np.ones(2)))
plotting.write_figures(records, world, ExactGPSettings(), Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""


@pytest.mark.thorough
def test_figures_leave_pyplot_and_its_settings_alone(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", CODE, str(tmp_path)], check=True, timeout=120)

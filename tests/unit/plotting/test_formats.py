"""Files of figures: all figures of a run, their formats, bytes and sizes, and their texts."""

import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from swarmbo.errors import ConfigError, DataWarning
from swarmbo.plotting import Formats, World, style, write_figures
from swarmbo.plotting.style import encoder, write_frames
from swarmbo.records import Traffic
from swarmbo.runs.stored_files import run_files
from swarmbo.spaces import Domain


def test_all_figures_of_a_run_are_written(run, tmp_path):
    made = run(rounds=1, failing=2.0)
    written = write_figures(made.records, made.world, made.settings, tmp_path / "figures", formats=Formats.of([], 50))
    assert [path.name for path in written] == ["belief.png", "regret.png", "traffic.png", "faults.png", "run.gif"]
    for path in written:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_figures_without_a_plane_traffic_or_rounds_are_left_out(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    assert write_figures([], made.world, made.settings, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()
    world = World(Domain(np.zeros(1), np.ones(1)))
    silent = [msgspec.structs.replace(record, sharing=Traffic(), report=None) for record in made.records]
    for records, figures in ((made.records, "regret traffic faults"), (silent, "regret faults")):
        with pytest.warns(DataWarning, match="no map and no film: locations have 1 coordinate, and maps need 2"):
            written = write_figures(records, world, made.settings, tmp_path, formats=Formats.of([], 40))
        assert [path.stem for path in written] == figures.split()
    with pytest.warns(DataWarning, match="no map and no film: the belief cannot be rebuilt without code of yours"):
        write_figures(made.records, made.world, None, tmp_path, formats=Formats.of([], 40))


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
def test_figures_do_not_import_pyplot_or_change_its_settings(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", CODE, str(tmp_path)], check=True, timeout=120)


@pytest.mark.slow
def test_all_figures_of_a_run_are_written_in_the_requested_format(run, tmp_path):
    made, formats = run(rounds=2, failing=2.0), Formats.of(["svg"], dpi=50)
    written = write_figures(made.records, made.world, made.settings, tmp_path / "figures", formats=formats)
    assert [path.name for path in written] == ["belief.svg", "regret.svg", "traffic.svg", "faults.svg", "run.gif"]
    assert all(path.read_bytes().startswith(b"<?xml") for path in written[:-1])
    assert set(written) <= set(run_files(tmp_path)), "files that --force may delete"


@pytest.mark.parametrize("name", ["png", "svg", "pdf"])
def test_a_figure_has_the_same_bytes_at_any_time(tmp_path, name, monkeypatch):
    written = list[bytes]()
    for number in range(2):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(10**9 + number))
        figure = Figure()
        figure.subplots().plot([1.0, 3.0, 2.0])
        written.append(style.save(figure, tmp_path / f"line.{name}", 40).read_bytes())
    assert written[0] == written[1]


def test_dots_per_inch_scale_a_figure(tmp_path):
    for dpi in (50, 100):
        figure = style.new_figure(4, 2)
        figure.subplots()
        with Image.open(style.save(figure, tmp_path / f"{dpi}.png", dpi)) as picture:
            assert picture.width == pytest.approx(4 * dpi, rel=0.05)


@pytest.mark.parametrize(
    ("names", "dpi", "message"),
    [
        (["jpeg"], None, "got 'jpeg'; wanted one of png, pdf, svg, gif, mp4"),
        (["png", "pdf"], None, "got png and pdf; wanted one of them"),
        (["gif", "mp4"], None, "got gif and mp4; wanted one of them"),
        ([], 5, "got 5; wanted 20 to 1200 dots per inch"),
        ([], 10**6, "wanted 20 to 1200"),
    ],
)
def test_invalid_formats_are_refused_in_one_line(names, dpi, message):
    with pytest.raises(ConfigError, match=message):
        Formats.of(names, dpi)


def test_one_format_of_figures_and_one_of_animations_can_be_given(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert Formats.of(["mp4", "svg"], 300) == Formats("svg", "mp4", 300)


@pytest.fixture
def without_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were not installed
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("without_package")
def test_without_an_encoder_mp4_is_refused_before_a_run():
    with pytest.raises(ConfigError, match=r"no encoder of MP4 here; `pip install \"swarmbo\[mp4\]\"`"):
        Formats.of(["mp4"])


FRAMES = [np.full((3, 5, 3), level, dtype=np.uint8) for level in (0, 90, 255)]


@pytest.fixture
def encode(without_package, tmp_path, monkeypatch):
    """A function that writes frames with a given program as the encoder."""
    if os.name == "nt":
        pytest.skip("a script cannot be a program on Windows")

    def made(body):
        program = tmp_path / "ffmpeg"
        program.write_text(f"#!{sys.executable}\nimport sys\n{body}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return write_frames(FRAMES, tmp_path / "new" / "run.mp4", [])

    return made


def test_the_encoder_gets_every_frame_and_the_last_one_for_three_seconds(tmp_path, encode):
    keeps = "open(sys.argv[-1], 'wb').write(' '.join(sys.argv).encode() + b'|' + sys.stdin.buffer.read())"
    command, _, pictures = encode(keeps).read_bytes().partition(b"|")
    assert b"-s 5x3 -r 1000/450 " in command  # with three frames, each is shown for the longest time
    shown = np.frombuffer(pictures, dtype=np.uint8).reshape(-1, 3, 5, 3)
    assert shown[:, 0, 0, 0].tolist() == [0, 90, *[255] * 7]  # 3 s / 0.45 s
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.mp4"]


@pytest.mark.parametrize("body", ["sys.exit('no such codec')", "sys.stderr.write('wrote nothing')"])
def test_a_failing_encoder_raises_an_error_and_leaves_no_files(tmp_path, encode, body):
    with pytest.raises(ConfigError, match=r"ffmpeg failed: (no such codec|wrote nothing)"):
        encode(body)
    assert not list((tmp_path / "new").iterdir())


def test_a_film_can_be_decoded(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((31, 45, 3), level, dtype=np.uint8) for level in (0, 90, 255)]
    path = write_frames(frames, tmp_path / "run.mp4", [])
    raw = [encoder(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    decoded = subprocess.run(raw, capture_output=True, check=True).stdout
    middle = np.frombuffer(decoded, dtype=np.uint8).reshape(-1, 32, 46)[:, 15, 20]
    assert middle == pytest.approx([0, 90, *[255] * 7], abs=4)
    assert write_frames(frames, tmp_path / "again.mp4", []).read_bytes() == path.read_bytes()


def labels_of(scale, values, **options):
    with style.applied():
        figure = style.new_figure(4, 4)
        ax = figure.subplots()
        ax.plot(range(len(values)), values)
        style.set_log(ax, scale, **options)
    figure.canvas.draw()
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.mark.parametrize(
    ("scale", "values", "options", "some"),
    [
        ("log", [1e-2, 1.0, 1e3], {}, {"10⁻²", "10⁰", "10³"}),
        ("symlog", [-1.0, 0.0, 20.0], {"linthresh": 1e-2}, {"−10⁰", "−10⁻²", "0", "10⁻²", "10¹"}),
        ("symlog", [-1e5, -3e3, 0.0], {"linthresh": 1e3}, {"−10⁴", "−10³", "0"}),
    ],
)
def test_labels_of_a_logarithmic_axis_are_plain_text(scale, values, options, some):
    labels = labels_of(scale, values, **options)
    assert "−10²" not in labels  # within the linear part
    assert some <= set(labels)
    assert not any("$" in label or "{" in label or "math" in label for label in labels)


def test_dollar_signs_in_titles_are_not_mathematics(tmp_path):
    with style.applied():
        figure = style.new_figure(4, 4)
        text = figure.subplots().set_title(r"costs in $ and \$, $\frac{$")
    assert not text.get_parse_math()
    assert style.save(figure, tmp_path / "odd.png", 40).is_file()

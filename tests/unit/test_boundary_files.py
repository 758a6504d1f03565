import os
import threading
from pathlib import Path

import pytest

from swarmbo.boundary.coordinates import read_polygons
from swarmbo.boundary.files import PARTIAL, read_regular, replacing
from swarmbo.errors import ConfigError


def test_a_regular_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    assert read_regular(tmp_path / "file") == b"text"
    if os.name != "nt":
        (tmp_path / "link").symlink_to(tmp_path / "file")
        assert read_regular(tmp_path / "link") == b"text"


def test_files_that_are_not_regular_are_refused_unread(tmp_path):
    with pytest.raises(OSError, match=r"it is a (folder|device)|denied"):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nowhere")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("read", [read_regular, lambda path: read_polygons(path, "$")])
def test_a_pipe_is_refused_without_waiting(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    refused = []

    def reads():
        with pytest.raises((OSError, ConfigError), match="it is a pipe"):
            read(tmp_path / "pipe")
        refused.append(True)

    reader = threading.Thread(target=reads, daemon=True)
    reader.start()
    reader.join(60)
    assert refused, "still waits for a writer"


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("FeatureCollection", "features"), ("GeometryCollection", "geometries"), ("MultiPolygon", "coordinates")],
)
@pytest.mark.parametrize("wrong", ["null", "3", '{"a": 1}'])
def test_geojson_whose_parts_are_not_a_list_is_refused(tmp_path, kind, parts, wrong):
    (tmp_path / "map.geojson").write_text(f'{{"type": "{kind}", "{parts}": {wrong}}}')
    with pytest.raises(ConfigError, match=rf"\$\.geojson: got a {kind} with .*; wanted a list of {parts}"):
        read_polygons(str(tmp_path / "map.geojson"), "$.geojson")


@pytest.mark.skipif(os.name == "nt", reason="creating links needs privileges there")
def test_a_file_is_replaced_as_a_whole_and_the_target_of_a_link_is_kept(tmp_path):
    (tmp_path / "precious").write_bytes(b"mine")
    for name in ("file", f"file{PARTIAL}"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
        assert (tmp_path / "file").read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"file{PARTIAL}", "precious"]


def test_two_writers_of_one_file_never_leave_half_of_it(tmp_path):
    """The second one begins and ends while the first is writing; or it is killed, and leaves its part."""
    with replacing(tmp_path / "file") as first:
        first.write(b"half of ")
        with replacing(tmp_path / "file") as second:
            second.write(b"the second")
        assert (tmp_path / "file").read_bytes() == b"the second"
        killed = replacing(tmp_path / "file")
        killed.__enter__().write(b"half")
        assert (tmp_path / "file").read_bytes() == b"the second"
        first.write(b"the first")
    assert (tmp_path / "file").read_bytes() == b"half of the first"
    killed.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(TypeError), replacing(tmp_path / "file") as file:
        file.writelines([b"half of ", None])
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", [".", "folder"])
def test_a_folder_is_not_replaced(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError), replacing(Path(name)):
        pass

"""The controllers on the page of the service run as they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RunningService

pytest.importorskip("uvicorn")

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "serve.md"
FILES = dict(re.findall(r"<!-- (?:file|controller): (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


@pytest.fixture
def service(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with RunningService(tmp_path / "oven", tmp_path / "oven.toml", ["initial=12"]) as service:
        yield service


@pytest.mark.thorough
@pytest.mark.parametrize(("controller", "program"), [("controller.py", sys.executable), ("controller.sh", "sh")])
def test_a_controller_tells_all_queries(service, tmp_path, controller, program):
    if controller.endswith(".sh") and (os.name != "posix" or not shutil.which("curl")):
        pytest.skip("needs curl and a shell")
    command = [program, controller, f"http://127.0.0.1:{service.port}", service.token, "ada"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    _, state = service.call("/state")
    assert (state["told"], state["pending"], state["failed"]) == (12, [], 0), ended
    assert state["best"]["outcome"] > -20.0
    assert "Traceback" not in ended.stderr


def test_the_controller_in_python_has_about_20_lines():
    assert len(FILES["controller.py"].splitlines()) <= 22
    assert set(FILES) == {"oven.toml", "controller.py", "controller.sh"}

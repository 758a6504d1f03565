"""Compiled code is cached for later processes, in any writable folder, and recompiled if its sources change."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

import numba
import pytest
from numba.core import types

import swarmbo
import swarmbo_envs
from swarmbo.boundary.compiling import compiled

SIGHT = """
import numpy as np
from swarmbo_envs.ground.sight import free_segments
print(free_segments(np.zeros((1, 2)), np.ones((1, 2)), np.eye(2, dtype=bool), (0.0, 0.0, 1.0, 1.0)))
"""

COUNT = """
import sys
from numba.core.dispatcher import Dispatcher
for name, module in sorted(sys.modules.items()):
    for made in list(vars(module).values()) if name.startswith("swarmbo") else ():
        if isinstance(made, Dispatcher) and made.__module__ == name and "no_cpython_wrapper" not in made.targetoptions:
            print("".join(f"compiled {made.__name__}," for _ in made.signatures), end="")
"""

BOUND = ["setpriv", "--bounding-set=-dac_override"]  # drops the right to ignore permissions, so that root obeys them


def python(code: str, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    command = [*(BOUND if which(BOUND[0]) else []), sys.executable, "-c", code]
    return subprocess.run(command, env=clean | {"PYTHONPATH": path} | environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "getuid") or not (os.getuid() or which("setpriv")), reason="nothing is read-only")
def test_compiled_code_is_kept_in_the_temporary_folder_if_no_other_is_writable_and_one_line_says_so(
    tmp_path: Path,
) -> None:
    install, temporary = tmp_path / "install", tmp_path / "tmp"
    for package in (Path(swarmbo.__path__[0]), Path(swarmbo_envs.__path__[0])):
        shutil.copytree(package, install / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    temporary.mkdir()
    folders = [install, *(path for path in install.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    environment = {"HOME": str(install), "MPLCONFIGDIR": str(temporary), "TMPDIR": str(temporary)}
    first, second = (python(SIGHT, str(install), **environment) for _ in range(2))
    kept = list(temporary.rglob("*.nbc"))
    for folder in temporary.glob("swarmbo-compiled-*"):
        assert folder.stat().st_mode & 0o77 == 0
        folder.chmod(0o777)  # code in a folder that others can write is not run
    nowhere = python(SIGHT, str(install), **environment)
    for path in folders:
        path.chmod(0o755)
    assert kept, first.stderr
    own = f"in {kept[0].parents[1]}"
    for run, where in ((first, own), (second, own), (nowhere, "in memory")):
        assert run.stdout == "[False]\n", run.stderr
        assert run.stderr.count("CompilingWarning") == 1
        assert f"it is kept {where}" in run.stderr


def test_code_with_a_signature_is_compiled_once_at_the_first_call() -> None:
    """The first call may come from several threads at once, or from other compiled code."""

    def power(x: float, n: int) -> float:
        out = 1.0
        for _ in range(n):
            out *= x
        return out

    signature = types.float64(types.float64, types.int64)
    for _ in range(4):
        made = compiled(signature)(power)
        assert not made.signatures
        with ThreadPoolExecutor(8) as pool:
            assert {asked.result() for asked in [pool.submit(made, 2.0, 3) for _ in range(16)]} == {8.0}
        assert made(2, 3) == 8.0
        with pytest.raises(TypeError, match="No matching definition"):
            made("2", 3)
        assert made.signatures == [signature.args]
    inner = compiled(signature)(power)
    assert numba.njit(lambda x: inner(x, 2))(3) == 9.0
    assert inner.signatures == [signature.args]


def test_the_loops_of_the_readme_compile_a_few_functions_once_each(tmp_path: Path) -> None:
    """Each signature takes a second or more on a new machine."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    loops = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    run = python("\n".join([f"import os; os.chdir({str(tmp_path)!r})", *loops, COUNT]), os.pathsep.join(sys.path))
    names = re.findall(r"compiled (\w+),", run.stdout)
    assert "evaluate" in names, run.stderr
    assert len(names) == len(set(names))
    assert set(names) <= {"add_covariances", "evaluate", "follow", "grow", "predict"}


@pytest.mark.slow
def test_code_is_recompiled_if_a_file_changes_from_which_it_imports(tmp_path: Path) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "constants.py").write_text("STEP = 1\n")
    (package / "inner.py").write_text(
        "import numba\nfrom some_package.constants import STEP\n\n@numba.njit\ndef after(x):\n    return x + STEP\n"
    )
    (package / "outer.py").write_text(
        "from swarmbo.boundary.compiling import compiled\nfrom some_package.inner import after\n\n"
        "@compiled()\ndef twice(x):\n    return after(after(x))\n"
    )
    (package / "other.py").write_text("OF_NO_USE = 1\n")
    code = "from some_package.outer import twice; print(twice(0), sum(twice.stats.cache_hits.values()))"
    path, told = os.pathsep.join([str(tmp_path), *sys.path]), list[str]()
    for change in (
        {},
        {},
        {"other.py": "OF_NO_USE = 2\n"},
        {"constants.py": "STEP = 5\n"},
        {"inner.py": "import numba\n\n@numba.njit\ndef after(x):\n    return x + 7\n"},
    ):
        for name, text in change.items():
            (package / name).write_text(text)
        run = python(code, path, PYTHONDONTWRITEBYTECODE="1")
        told.append(run.stdout.strip() or run.stderr)
    assert told == ["2 0", "2 1", "2 1", "10 0", "14 0"]

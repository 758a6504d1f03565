"""The compiled code of a first run, compiled by further processes on a machine that has not compiled it before.

A process compiles one function at a time. So what an initial design leaves time for, and what a core has time for, is
compiled while this process does other things, and comes to it by the cache on disk.
"""

import atexit
import os
import subprocess
import sys
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from swarmbo.boundary.processes import n_threads

_LONGEST = "swarmbo.belief.gp.stack_evaluation.evaluate"
_SHARES = (  # of a process each, in the order in which they are needed
    [f"swarmbo.belief.gp.{name}" for name in (
        "evidence.add_covariances", "stack_predict.predict_few", "stack_predict.predict", "evidence.put_derivatives",
    )],
    [_LONGEST],
)  # fmt: skip


@cache
def compile_ahead() -> None:
    """Begin, unless this was begun before, the code is on disk, or ``n_threads`` leaves no core."""
    shares = _SHARES[: n_threads() - 1]
    if not (shares and _is_cold()):
        return
    from swarmbo.boundary.compiling import elsewhere  # late: numba is slow to load

    for names in shares:
        command = [sys.executable, "-m", __name__, *names]
        told: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        helper = subprocess.Popen(command, **told, text=True, env=os.environ | path)
        elsewhere.update((name, partial(_wait, helper, name)) for name in names)
        atexit.register(_end, helper)


def _is_cold() -> bool:
    module, name = _LONGEST.rsplit(".", 1)
    folder = Path(__file__).parents[1] / "belief" / "gp" / "__pycache__"
    if "NUMBA_CACHE_DIR" in os.environ or not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        kept = vars(import_module(module))[name].stats.cache_path
        if kept is None:  # nowhere
            return False
        folder = Path(kept)
    return not any(folder.glob(f"{module.rsplit('.', 1)[1]}.{name}-*.nbi"))


def _wait(helper: "subprocess.Popen[str]", name: str) -> None:
    """Until a helper says that it has compiled something, or ended; then this process compiles it."""
    from swarmbo.boundary.compiling import elsewhere

    for line in helper.stdout or ():
        elsewhere.pop(line.strip(), None)
        if line.strip() == name:
            return


def _end(helper: "subprocess.Popen[str]") -> None:
    helper.kill()
    helper.communicate()


if __name__ == "__main__":
    for told in sys.argv[1:]:
        module, function = told.rsplit(".", 1)
        vars(import_module(module))[function].compile_now()
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()

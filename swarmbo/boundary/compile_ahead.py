"""The compiled code of a first run, compiled by further processes on a machine that has not compiled it before.

A process compiles one function at a time. Others do so while this one does other things, and it finds theirs on disk.
"""

import atexit
import os
import subprocess
import sys
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from swarmbo.boundary.processes import n_threads

_GP = Path(__file__).parents[1] / "belief" / "gp"
_SHARES = (  # of a process each, in the order in which they are needed
    ("evidence.add_covariances", "stack_predict.predict_few", "stack_predict.predict", "evidence.put_derivatives"),
    ("stack_evaluation.evaluate",),
)


@cache
def compile_ahead() -> None:
    """Begin, unless this was begun before, the code is on disk, or ``n_threads`` leaves no core."""
    shares, folder = _SHARES[: n_threads() - 1], Path(os.environ.get("NUMBA_CACHE_DIR", _GP))
    if not (shares and os.access(folder, os.W_OK)) or any(folder.rglob(f"{_SHARES[-1][0]}-*.nbi")):
        return
    from swarmbo.boundary.compiling import elsewhere  # late: numba is slow to load

    for share in shares:
        names, path = [f"swarmbo.belief.gp.{name}" for name in share], os.pathsep.join(sys.path)
        helper = subprocess.Popen(
            [sys.executable, "-m", __name__, *names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        elsewhere.update((name, partial(_wait, helper, name)) for name in names)
        atexit.register(helper.kill)


def _wait(helper: "subprocess.Popen[str]", name: str) -> None:
    """Until a helper says that it has compiled something, or ended; then this process compiles it."""
    from swarmbo.boundary.compiling import elsewhere

    for line in helper.stdout or ():
        elsewhere.pop(line.strip(), None)
        if line.strip() == name:
            return


if __name__ == "__main__":
    for told in sys.argv[1:]:
        module, function = told.rsplit(".", 1)
        vars(import_module(module))[function].compile_now()
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()

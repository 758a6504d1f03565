"""Processes of the members on this machine, which are restarted after failures."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from swarmbo.errors import TransportError

_TRIES = 3  # failed starts of a process before the run is given up
_ENDING = 5.0  # seconds that processes have to end


class Processes:
    """Processes of members, each of which ends with this one.

    If ``goes_on``, a member that fails repeatedly is noted in ``ended``, with its last output; else that ends the run.
    """

    def __init__(self, names: Iterable[str], plan: Path, *, goes_on: bool = False) -> None:
        self._plan, self._goes_on = plan, goes_on
        self.restarts, self.ended = Counter[str](), dict[str, str]()
        self.by_name = {name: self._start(name) for name in names}

    def attend(self) -> None:
        """Restart failed processes."""
        for name, process in self.by_name.items():
            if name in self.ended or process.poll() is None:
                continue
            if self.restarts[name] == _TRIES:
                why = (
                    f"the process of {name!r} has ended {_TRIES + 1} times, at last with {process.returncode}: "
                    f"{self._last_words(name)}; {self._log(name)} has all that it said"
                )
                if not self._goes_on:
                    raise TransportError(why)
                self.ended[name] = why
                continue
            self.restarts[name] += 1
            self.by_name[name] = self._start(name)

    def close(self) -> None:
        """End them all."""
        for process in self.by_name.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self.by_name.values():
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "swarmbo", "agent", name, "--fleet", str(self._plan), "--attached"]
        with self._log(name).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def _log(self, name: str) -> Path:
        return self._plan.parent / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

"""Work of executors in tests: it sleeps, raises, ends its process, hangs or returns a function, as the point says."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Doing:
    """Each point is a list of actions with amounts; ``marks`` is a folder where each started task leaves a file."""

    marks: Path | None = None

    def __call__(self):
        return self.evaluate

    def evaluate(self, task, point):
        count = 0
        if self.marks is not None:
            count = len(list(self.marks.glob(f"{task}.*")))
            (self.marks / f"{task}.{count}").write_text(str(os.getpid()))
        for what, amount in point:
            if what == "sleep":
                time.sleep(amount)
            elif what == "raise":
                raise ValueError(f"nothing at {amount}")
            elif what == "leave":
                raise SystemExit(int(amount))
            elif what == "return":
                return {"function": lambda: None}
            elif what == "kill" and count < amount:  # the first tries only
                os.kill(os.getpid(), signal.SIGKILL)
            elif what == "hang" and count < amount:
                time.sleep(600.0)
        return {"task": task, "pid": os.getpid()}


class Broken:
    """Work that can't be made."""

    def __call__(self):
        raise RuntimeError("no licence")


class Dies:
    """Work whose process ends while it is made."""

    def __call__(self):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Valley:
    """Minus a sum of squares, with the query's number as noise."""

    sleep_s: float = 0.0

    def __call__(self):
        return self.evaluate

    def evaluate(self, task, point):
        time.sleep(self.sleep_s)
        noise = int(task[1:]) % 7 * 1e-3
        return -sum((value - 0.3) ** 2 for value in point.values()) + noise

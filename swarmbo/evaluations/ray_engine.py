"""Executor on a Ray cluster, which it starts on this machine or joins (extra ``ray``)."""

import contextlib
import pickle
from typing import Any

from swarmbo.boundary.values import error_text
from swarmbo.errors import MissingPackageError
from swarmbo.evaluations.executor import Ended, Starts, Work, evaluated_by

_START_S = 60.0  # for a worker process that starts, added to the limit of a task
OBJECT_STORE = 80_000_000  # bytes; results are small, and Ray would take a third of the memory


class RayExecutor:
    """Executor whose tasks are Ray's.

    Ray's own retries are off, since the driver retries and logs that. A worker that hangs is killed.

    Args:
        work: Makes the evaluation in each worker process.
        count: Number of tasks at a time; each takes one CPU of the cluster.
        timeout_s: Limit of a task, s; None for no limit.
        address: Address of a cluster, ``auto`` for one that this machine is part of; None starts one here.

    Raises:
        MissingPackageError: If Ray is not installed.
        ConnectionError: If there is no such cluster.
    """

    def __init__(self, work: Work, count: int, timeout_s: float | None = None, address: str | None = None) -> None:
        self._ray = ray = _ray()
        self._is_own = not ray.is_initialized()
        if self._is_own:
            here: dict[str, Any] = {"num_cpus": count, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
            ray.init(address=address or "local", log_to_driver=False, **({} if address else here))
        self._starts = Starts(count, timeout_s, _START_S)
        self._work = ray.put(pickle.dumps(work))
        # a copy of its own for each worker, so that modules of this session's folder need not be sent with it
        self._evaluate = ray.remote(max_retries=0, num_cpus=1)(evaluated_by)
        self._tasks = dict[Any, str]()

    def submit(self, task: str, point: Any) -> None:
        """Hand a task to the cluster."""
        self._tasks[self._evaluate.remote(self._work, task, point)] = task
        self._starts.add(task)

    def poll(self, timeout: float) -> list[Ended]:
        """Wait for ends of tasks, at most ``timeout`` seconds."""
        found, refs = list[Any](), list(self._tasks)
        if refs:
            found, _ = self._ray.wait(refs, num_returns=1, timeout=self._starts.patience(timeout))
            found, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0) if found else (found, refs)
        ends = [self._end_of(ref) for ref in found]
        for ref in found:  # not cancelled: Ray ends the driver's process if a task is both cancelled and complete
            self._starts.remove(self._tasks.pop(ref))
        late = self._starts.late()
        for end in late:
            self.cancel(end.task)
        return ends + late

    def _end_of(self, ref: Any) -> Ended:
        try:
            return self._ray.get(ref)
        except Exception as error:  # noqa: BLE001  of Ray: exceptions of tasks are results
            return Ended(self._tasks[ref], "lost", error_text(error))

    def cancel(self, task: str) -> None:
        """Drop a task; the process of a running one is killed."""
        for ref in [ref for ref, name in self._tasks.items() if name == task]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(ref, force=True)
            del self._tasks[ref]
        self._starts.remove(task)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        for task in list(self._tasks.values()):
            self.cancel(task)
        if self._is_own:
            self._ray.shutdown()


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]  # late: it takes seconds to import
    except ImportError:
        raise MissingPackageError(
            'got "ray", and Ray is not installed; wanted pip install "swarmbo[ray]"', at="$.workers.engine"
        ) from None
    return ray

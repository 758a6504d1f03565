"""Engines that carry out evaluations, by name; Ray's is a cluster, started here or joined (extra ``ray``)."""

import contextlib
import pickle
from collections.abc import Sequence
from concurrent.futures import Executor as Futures
from pathlib import Path
from typing import Annotated, Any, Literal

from swarmbo.boundary.values import error_text, short
from swarmbo.errors import ConfigError, needed
from swarmbo.evaluations import executor
from swarmbo.evaluations.pool import Pool
from swarmbo.registry import find_in, is_own, load
from swarmbo.settings import Settings, convert, require, within

_START_S = 60.0  # for a worker process that starts, added to the limit of a task
OBJECT_STORE = 80_000_000  # bytes; results are small, and Ray would take a third of the memory
ENGINES = ("pool", "ray")


class RayExecutor:
    """Executor that runs tasks on a Ray cluster.

    Ray's own retries are off, since the driver retries and logs retries. A worker that hangs is killed.

    Args:
        work: Function that makes the evaluation in each worker process.
        count: Number of simultaneous tasks; each takes one CPU of the cluster.
        timeout_s: Limit of a task, s; None for no limit.
        address: Address of a cluster; ``auto``: the cluster of this machine; None: start a cluster on this machine.

    Raises:
        MissingPackageError: If Ray is not installed.
        ConnectionError: If there is no cluster at the address.
    """

    def __init__(
        self, work: executor.Work, count: int, timeout_s: float | None = None, address: str | None = None
    ) -> None:
        self._ray = ray = needed("ray", "ray", "the engine 'ray'", "$.workers.engine")
        self._is_own = not ray.is_initialized()
        if self._is_own:
            here: dict[str, Any] = {"num_cpus": count, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
            ray.init(address=address or "local", log_to_driver=False, **({} if address else here))
        self._starts = executor.Starts(count, timeout_s, _START_S)
        self._work = ray.put(pickle.dumps(work))
        # a copy of its own for each worker, so that modules of this session's folder need not be sent with it
        self._evaluate = ray.remote(max_retries=0, num_cpus=1)(executor.evaluated_by)
        self._tasks = dict[Any, str]()

    def submit(self, task: str, point: Any) -> None:
        """Hand a task to the cluster."""
        self._tasks[self._evaluate.remote(self._work, task, point)] = task
        self._starts.add(task)

    def poll(self, timeout: float) -> list[executor.Ended]:
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

    def _end_of(self, ref: Any) -> executor.Ended:
        try:
            return self._ray.get(ref)
        except Exception as error:  # noqa: BLE001  of Ray: exceptions of tasks are results
            return executor.Ended(self._tasks[ref], "lost", error_text(error))

    def cancel(self, task: str) -> None:
        """Drop a task. If it is running, its process is killed."""
        for ref in [ref for ref, name in self._tasks.items() if name == task]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(ref, force=True)
            del self._tasks[ref]
        self._starts.remove(task)

    def close(self) -> None:
        """Leave the cluster. A cluster that this executor started ends."""
        for task in list(self._tasks.values()):
            self.cancel(task)
        if self._is_own:
            self._ray.shutdown()


class Workers(Settings, frozen=True):
    """Workers that evaluate points in parallel.

    Args:
        count: Number of simultaneous evaluations, 1 to 4096.
        mode: ``asynchronous``: a new point is decided after each outcome. ``synchronous``: batches of ``count`` points.
        engine: ``pool``: processes on this machine. ``ray``: a Ray cluster (extra ``ray``). ``"module:Class"``: your
            own ``concurrent.futures.Executor`` or ``Executor``.
        address: Address of a Ray cluster; ``auto``: the cluster of this machine; None: start a cluster on this machine.
    """

    count: Annotated[int, within(1, 4096)] = 1
    mode: Literal["asynchronous", "synchronous"] = "asynchronous"
    engine: str = "pool"
    address: str | None = None

    @classmethod
    def of(cls, **given: Any) -> "Workers":
        """Make workers from settings; settings that are None keep their defaults.

        Raises:
            ConfigError: If a setting is invalid.
        """
        return convert({key: value for key, value in given.items() if value is not None}, cls, "$.workers")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "engine", lambda name: name in ENGINES or is_own(name), 'pool, ray or "module:Class"')
        require(self, "address", lambda given: given is None or self.engine == "ray", "none unless the engine is ray")


def make_executor(
    workers: Workers, work: executor.Work, results: Path | None, timeout_s: float | None, modules: Sequence[str] = ()
) -> executor.Executor:
    """Executor of an engine, with results in an existing folder; code of the user's own must be trusted by now."""
    at = "$.workers.engine"
    if workers.engine == "pool":
        return Pool(work, workers.count, results, timeout_s)
    if workers.engine == "ray":
        return RayExecutor(work, workers.count, timeout_s, workers.address)
    find_in(modules, workers.engine, at)
    maker = load(workers.engine, at)
    try:
        if isinstance(maker, type) and issubclass(maker, Futures):
            made: Any = maker(workers.count)  # pyright: ignore[reportCallIssue]
        else:
            made = maker(work=work, count=workers.count, timeout_s=timeout_s)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{workers.engine} failed: {error_text(error)}", at=at) from error
    if isinstance(made, Futures):
        return executor.FuturesExecutor(made, work, workers.count, timeout_s)
    if missing := [name for name in ("submit", "poll", "cancel", "close") if not hasattr(made, name)]:
        raise ConfigError(f"got {short(made)} without {', '.join(missing)}; wanted an Executor", at=at)
    return made

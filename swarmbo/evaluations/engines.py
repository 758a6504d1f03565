"""Engines that carry out evaluations, by name; Ray's is a cluster, started here or joined (extra ``ray``)."""

import contextlib
import pickle
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor as Futures, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import count as counting
from multiprocessing import current_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Annotated, Any, Literal

from swarmbo.boundary.processes import one_blas_thread
from swarmbo.boundary.values import error_text, short
from swarmbo.errors import ConfigError, SwarmboError, needed
from swarmbo.evaluations import executor
from swarmbo.registry import add_module_folders, is_user_code, load
from swarmbo.settings import Settings, convert, require, within

_AT = "$.workers.engine"
_local = threading.local()  # work, its time limit and evaluation, by thread, as environments are not thread-safe
OBJECT_STORE = 80_000_000  # bytes; results are small, and Ray would take a third of the memory
ENGINES = ("pool", "ray")


class _TimeLimited:
    """Evaluation in a child process of this worker, which is killed if it takes too long, as a thread cannot be."""

    def __init__(self, work: executor.Work, timeout_s: float) -> None:
        if current_process().daemon:  # as workers of Dask are: a daemon may not start processes
            current_process().daemon = False
        self._pool = executor.Pool(work, 1, None, timeout_s)
        Finalize(self, self._pool.close)  # when its thread ends

    def __call__(self, task: str, point: Any) -> executor.Ended:
        self._pool.submit(task, point)
        while not (ends := self._pool.poll(1.0)):
            pass
        return ends[0]


def evaluate_in_worker(
    work: bytes | executor.Work, timeout_s: float | None, attempt: int, task: str, point: Any
) -> executor.Ended | SwarmboError:
    """Carry out a task in a worker. Each thread makes the evaluation once from ``work``, pickled between processes.

    ``attempt`` differs in each call, as Dask reuses results of equal calls. If ``work`` fails, return the error.
    """
    # in a thread of the caller's process, a limit on BLAS threads would apply to the caller, too
    with one_blas_thread() if isinstance(work, bytes) else contextlib.nullcontext():
        try:
            if getattr(_local, "work", None) != (work, timeout_s):
                made: executor.Work = pickle.loads(work) if isinstance(work, bytes) else work
                limited = None if timeout_s is None else _TimeLimited(made, timeout_s)
                _local.evaluate = limited or partial(executor.evaluate_task, executor.make_evaluate(made))
                _local.work = work, timeout_s
            return _local.evaluate(task, point)
        except Exception as error:
            _local.work, _local.evaluate = None, None  # its process may have ended for good
            if isinstance(error, SwarmboError):
                return error
            raise


class FuturesExecutor:
    """Executor that uses a ``concurrent.futures.Executor``: of the standard library, Dask, MPI or Slurm.

    Args:
        futures: The executor, which ``close`` shuts down. A ``ProcessPoolExecutor`` ends with its first lost process.
        work: Function that makes the evaluation in each worker.
        timeout_s: Time limit of a task from its start in a worker, s. Each worker then has a separate process for
            tasks, which must be able to import ``work``; a process that takes longer is killed. None: no limit.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from functools import partial
        >>> from operator import mul
        >>> executor = FuturesExecutor(ThreadPoolExecutor(2), partial(partial, mul))
        >>> for task in ("a", "b"):
        ...     executor.submit(task, 3)
        >>> ends = [*executor.poll(60.0), *executor.poll(0.1)]
        >>> executor.close()
        >>> sorted((end.task, end.status, end.value) for end in ends)
        [('a', 'done', 'aaa'), ('b', 'done', 'bbb')]
    """

    def __init__(self, futures: Futures, work: executor.Work, *, timeout_s: float | None = None) -> None:
        self._futures, self._timeout_s, self._attempts = futures, timeout_s, counting()
        self._work = work if isinstance(futures, ThreadPoolExecutor) else pickle.dumps(work)
        self._tasks = dict[Future[executor.Ended | SwarmboError], str]()

    def submit(self, task: str, point: Any) -> None:
        """Hand a task to the executor."""
        args = self._work, self._timeout_s, next(self._attempts), task, point
        self._tasks[self._futures.submit(evaluate_in_worker, *args)] = task

    def poll(self, timeout: float) -> list[executor.Ended]:
        """Wait for ends of tasks, at most ``timeout`` seconds.

        Raises:
            SwarmboError: If a worker cannot make its evaluation.
        """
        ends = list[executor.Ended]()
        for future in wait(self._tasks, timeout, return_when=FIRST_COMPLETED).done:
            try:
                end = future.result()
            except ImportError as error:
                wanted = "wanted workers that have swarmbo and your modules on Python's path"
                end = ConfigError(f"a worker cannot begin: {error_text(error)}; {wanted}", at="$.workers")
            except (Exception, CancelledError) as error:  # noqa: BLE001  of the machinery; errors of tasks are results
                end = executor.Ended(self._tasks[future], "lost", error_text(error))
            if isinstance(end, executor.Ended):
                ends.append(end)
            elif ends:
                break  # the error of a worker that cannot begin is raised by the next poll
            del self._tasks[future]
            if isinstance(end, SwarmboError):
                raise end
        return ends

    def close(self) -> None:
        """Shut the executor down, without waiting for running tasks."""
        for future in self._tasks:
            future.cancel()
        self._futures.shutdown(wait=False)


class RayExecutor(FuturesExecutor):
    """Executor that runs tasks on a Ray cluster, without Ray's own retries.

    Args:
        work: Function that makes the evaluation in each worker.
        count: Number of simultaneous tasks; each takes one CPU of the cluster.
        timeout_s: Time limit of a task, s, as in ``FuturesExecutor``.
        address: Address of a cluster; ``auto``: the cluster of this machine; None: start a cluster on this machine.

    Raises:
        MissingPackageError: If Ray is not installed.
        ConnectionError: If there is no cluster at the address.
    """

    def __init__(
        self, work: executor.Work, count: int, timeout_s: float | None = None, address: str | None = None
    ) -> None:
        self._ray = ray = needed("ray", "ray", "the engine 'ray'", _AT)
        self._is_own = not ray.is_initialized()
        if self._is_own:
            here: dict[str, Any] = {"num_cpus": count, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
            ray.init(address=address or "local", log_to_driver=False, **({} if address else here))
        self._work, self._timeout_s = ray.put(pickle.dumps(work)), timeout_s
        # each worker imports its own copy, so that modules of this session's folder need not be sent with it
        self._evaluate = ray.remote(max_retries=0, num_cpus=1)(evaluate_in_worker)
        self._tasks = dict[Any, str]()  # by future, which has its reference

    def submit(self, task: str, point: Any) -> None:
        """Hand a task to the cluster."""
        self._tasks[self._evaluate.remote(self._work, self._timeout_s, 0, task, point).future()] = task

    def close(self) -> None:
        """Kill the processes of running tasks, and leave the cluster. A cluster that this executor started ends."""
        for future in self._tasks:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(future.object_ref, force=True)
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
        require(self, "engine", lambda name: name in ENGINES or is_user_code(name), 'pool, ray or "module:Class"')
        require(self, "address", lambda given: given is None or self.engine == "ray", "none unless the engine is ray")


def engine_of(workers: Workers, modules: Sequence[str]) -> Any:
    """Maker of an engine's executor; a user's own engine is trusted by now. A ConfigError if there is none."""
    if workers.engine == "pool":
        return executor.Pool
    if workers.engine == "ray":
        needed("ray", "ray", "the engine 'ray'", _AT)
        return RayExecutor
    add_module_folders(modules, workers.engine, _AT)
    return load(workers.engine, _AT)


def make_executor(
    workers: Workers, work: executor.Work, results: Path | None, timeout_s: float | None, modules: Sequence[str] = ()
) -> executor.Executor:
    """Executor of an engine; the pool writes results to an existing folder."""
    maker = engine_of(workers, modules)
    if maker is executor.Pool:
        return executor.Pool(work, workers.count, results, timeout_s)
    if maker is RayExecutor:
        return RayExecutor(work, workers.count, timeout_s, workers.address)
    try:
        if isinstance(maker, type) and issubclass(maker, Futures):
            result: Any = maker(workers.count)  # pyright: ignore[reportCallIssue]
        else:
            result = maker(work=work, count=workers.count, timeout_s=timeout_s)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        got = f"{workers.engine}(work, count, timeout_s) failed: {error_text(error)}"
        raise ConfigError(f"{got}; wanted an executor", at=_AT) from error
    if isinstance(result, Futures):
        return FuturesExecutor(result, work, timeout_s=timeout_s)
    if missing := [name for name in ("submit", "poll", "close") if not hasattr(result, name)]:
        wanted = "wanted an executor of concurrent.futures, or all three methods"
        raise ConfigError(f"got {short(result)} without {', '.join(missing)}; {wanted}", at=_AT)
    return result

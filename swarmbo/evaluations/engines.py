"""Engines that carry out evaluations, by name."""

from collections.abc import Sequence
from concurrent.futures import Executor as Futures
from pathlib import Path
from typing import Annotated, Any, Literal

from swarmbo.boundary.values import error_text, short
from swarmbo.errors import ConfigError
from swarmbo.evaluations.executor import Executor, FuturesExecutor, Work
from swarmbo.evaluations.pool import Pool
from swarmbo.evaluations.ray_engine import RayExecutor
from swarmbo.registry.plugins import find_in, is_own, load
from swarmbo.settings import Settings, convert, require, within

ENGINES = ("pool", "ray")


class Workers(Settings, frozen=True):
    """Workers that evaluate points side by side.

    Args:
        count: Number of evaluations at a time, 1 to 4096.
        mode: ``asynchronous``: a point is decided for each outcome; ``synchronous``: batches of ``count`` points.
        engine: ``pool``: processes on this machine; ``ray``: a Ray cluster (extra ``ray``); or ``"module:Class"``, a
            ``concurrent.futures.Executor`` or an ``Executor`` of your own.
        address: Address of a Ray cluster to join, ``auto`` for that of this machine; None starts one here.
    """

    count: Annotated[int, within(1, 4096)] = 1
    mode: Literal["asynchronous", "synchronous"] = "asynchronous"
    engine: str = "pool"
    address: str | None = None

    @classmethod
    def of(cls, **given: Any) -> "Workers":
        """Workers of settings, without those that are None.

        Raises:
            ConfigError: If one is refused.
        """
        return convert({key: value for key, value in given.items() if value is not None}, cls, "$.workers")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "engine", lambda name: name in ENGINES or is_own(name), 'pool, ray or "module:Class"')
        require(self, "address", lambda given: given is None or self.engine == "ray", "none unless the engine is ray")


def make_executor(
    workers: Workers, work: Work, results: Path | None, timeout_s: float | None, modules: Sequence[str] = ()
) -> Executor:
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
        return FuturesExecutor(made, work, workers.count, timeout_s)
    if missing := [name for name in ("submit", "poll", "cancel", "close") if not hasattr(made, name)]:
        raise ConfigError(f"got {short(made)} without {', '.join(missing)}; wanted an Executor", at=at)
    return made

"""Many evaluations at once: a log of asks and tells, executors, and a driver."""

from swarmbo.evaluations.driver import Driver as Driver, WorkerStatistics as WorkerStatistics
from swarmbo.evaluations.engines import (
    FuturesExecutor as FuturesExecutor,
    RayExecutor as RayExecutor,
    Workers as Workers,
    make_executor as make_executor,
)
from swarmbo.evaluations.executor import Ended as Ended, Executor as Executor, Pool as Pool
from swarmbo.evaluations.ledger import Event as Event, Ledger as Ledger

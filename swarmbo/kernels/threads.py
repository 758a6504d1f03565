"""Parallel threads for independent rows, whose results do not depend on the number of threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_FEWEST = 32  # fewest rows of a thread, as starting a thread takes as long as some rows


def n_threads() -> int:
    """Number of cores that this process may use, or ``OMP_NUM_THREADS`` if set (the first number of a list)."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(n_rows: int, work: Callable[[slice], None]) -> None:
    """Process slices of rows in at most one thread per core and per 32 rows; ``work`` should release Python's lock."""
    n_shares = n_rows // _FEWEST
    if n_shares < 2 or (n_shares := min(n_threads(), n_shares)) < 2:
        work(slice(0, n_rows))
        return
    edges = [n_rows * share // n_shares for share in range(n_shares + 1)]
    with ThreadPoolExecutor(n_shares) as pool:  # a new one for each call: a forked process would lack its threads
        for _ in pool.map(work, map(slice, edges[:-1], edges[1:])):
            pass

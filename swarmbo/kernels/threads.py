"""Rows that have nothing to do with one another, worked on by several threads: compiled code lets others run beside it.

What comes out of a row does not depend on the others, so nor does it on how many threads there are.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_FEWEST = 32  # rows of a thread: to start one takes as long as some rows do


def n_threads() -> int:
    """The cores that this process may use, or as many as the environment's ``OMP_NUM_THREADS`` says, if it does.

    Of a list, which has one number for each level of nested threads, the first counts.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(n_rows: int, work: Callable[[slice], None]) -> None:
    """Work on all rows, in as many threads as there are cores and enough rows for.

    Args:
        n_rows: How many there are.
        work: Works on some of them and puts what comes out where nobody else does; without Python's lock.
    """
    n_shares = n_rows // _FEWEST
    if n_shares < 2 or (n_shares := min(n_threads(), n_shares)) < 2:
        work(slice(0, n_rows))
        return
    edges = [n_rows * share // n_shares for share in range(n_shares + 1)]
    with ThreadPoolExecutor(n_shares) as pool:  # made anew each time: a process that is forked has none of its threads
        for _ in pool.map(work, map(slice, edges[:-1], edges[1:])):
            pass

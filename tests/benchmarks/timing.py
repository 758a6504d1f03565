"""Times in benchmarks: of one run and one core, as those of one machine differ by two from hour to hour.

None is asserted: ratios to a baseline of the same run go to ``extra_info``. On busy cores ask for
``--benchmark-timer=time.process_time``, too.
"""

import gc
import time
import timeit
from collections.abc import Callable
from typing import Any


def seconds(call: Callable[[], Any], repeat: int = 5, number: int = 1, timer: Any = time.perf_counter) -> float:
    """Of the quickest call."""
    gc.collect()
    return min(timeit.repeat(call, number=number, repeat=repeat, timer=timer)) / number


def own_seconds(call: Callable[[], Any], repeat: int = 5, number: int = 1) -> float:
    """The same of this process, whatever else the machine does."""
    return seconds(call, repeat, number, time.process_time)

"""Times in benchmarks, on one core. Compare them within one run only: a machine's speed varies twofold over hours.

No time is asserted: ratios to a baseline of the same run go to ``extra_info``. On busy cores, also pass
``--benchmark-timer=time.process_time``.
"""

import gc
import time
import timeit
from collections.abc import Callable
from typing import Any


def seconds(call: Callable[[], Any], repeat: int = 5, number: int = 1, timer: Any = time.perf_counter) -> float:
    """Seconds of the fastest call."""
    gc.collect()
    return min(timeit.repeat(call, number=number, repeat=repeat, timer=timer)) / number


def own_seconds(call: Callable[[], Any], repeat: int = 5, number: int = 1) -> float:
    """CPU seconds of this process in the fastest call: other processes do not count."""
    return seconds(call, repeat, number, time.process_time)

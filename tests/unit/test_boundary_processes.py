"""BLAS limited to one thread, and interrupts that are delayed."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from swarmbo.boundary.processes import without_interrupts

TWICE = """
import numpy
from threadpoolctl import threadpool_info
from swarmbo.boundary.processes import one_blas_thread

def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

before = threads()
with one_blas_thread():
    assert set(threads()) == {1}
assert threads() == before
import scipy.linalg
before = threads()
with one_blas_thread():
    assert set(threads()) == {1}
assert threads() == before
"""


def test_blas_has_one_thread_within_the_block_also_in_libraries_loaded_later() -> None:
    two = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    subprocess.run([sys.executable, "-c", TWICE], env=os.environ | two, check=True)


@pytest.mark.skipif(os.name != "posix", reason="a process cannot interrupt itself")
def test_an_interrupt_waits_for_the_end_of_the_block_also_if_another_thread_receives_it() -> None:
    ended, done = threading.Event(), list[str]()

    def block() -> None:
        with without_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            done.append("the rest of the block")

    # this thread does not block the interrupt, so the system delivers it there
    threading.Thread(target=ended.wait, daemon=True).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            block()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
    assert done

"""The limit of BLAS to one thread."""

import os
import subprocess
import sys

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


def test_blas_has_one_thread_within_the_block_also_in_libraries_that_were_loaded_since() -> None:
    two = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    subprocess.run([sys.executable, "-c", TWICE], env=os.environ | two, check=True)

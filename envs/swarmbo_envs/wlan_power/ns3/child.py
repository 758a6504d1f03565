"""A simulator in a separate process: ``python child.py LIBRARY`` answers a line of JSON with a line of JSON.

It imports the standard library only, so that it starts fast and only ns-3 can crash it. It ends when its input ends, or
when its parent is gone while a simulation hangs.
"""

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
from typing import Any

_ARRAYS: dict[str, Any] = dict.fromkeys(("point_xy", "user_xy"), ctypes.c_double)
_ARRAYS |= {"serving": ctypes.c_int32}
_ARRAYS |= dict.fromkeys(("power_dbm", "to_users_db", "between_db", "disturbs", "width_mhz"), ctypes.c_double)
_ARRAYS |= dict.fromkeys(("channel", "primary"), ctypes.c_int32)
_NUMBERS = ("loss_at_one_metre_db", "loss_per_decade_db", "noise_dbm", "bandwidth_mhz", "user_power_dbm")
_NUMBERS += ("warm_up_s", "seconds")


class Wlan(ctypes.Structure):
    """``Wlan`` of wlan_downlink.cc: the same fields in the same order."""

    _fields_ = [
        ("points", ctypes.c_int32),
        ("users", ctypes.c_int32),
        *((name, ctypes.POINTER(kind)) for name, kind in _ARRAYS.items()),
        *((name, ctypes.c_double) for name in _NUMBERS),
        ("run", ctypes.c_uint32),
    ]


def answer(library: ctypes.CDLL, request: dict[str, Any]) -> dict[str, Any]:
    """Run a requested simulation: returns ``sinr`` (m,), or ``mbps`` (m,) and ``associated`` (m,).

    ``request`` has an ``objective``, and the fields of ``Wlan`` with arrays as flat lists, row by row.
    """
    arrays = {name: (kind * len(request[name]))(*request[name]) for name, kind in _ARRAYS.items()}
    wlan = Wlan(**arrays, **{name: request[name] for name in (*_NUMBERS, "run", "points", "users")})
    n_users = request["users"]
    values = (ctypes.c_double * n_users)()
    if request["objective"] == "capacity":
        library.swarmbo_sinr(ctypes.byref(wlan), values)
        return {"sinr": list(values)}
    associated = (ctypes.c_int32 * n_users)()
    library.swarmbo_throughput(ctypes.byref(wlan), values, associated)
    return {"mbps": list(values), "associated": list(associated)}


def _end_with_parent() -> None:
    """End when the parent is gone, as a hanging simulation reads no input."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Answer until the input ends."""
    # answers have a separate channel: ns-3's own output goes to the standard error
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        library = ctypes.CDLL(sys.argv[1])
        _write(answers, {"ready": True})
        for line in sys.stdin:
            request = json.loads(line)
            _write(answers, {"id": request["id"], **answer(library, request)})


def _write(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main()

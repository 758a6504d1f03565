"""Warnings of the command line: one line each, once, without the location in the code."""

import sys
import warnings
from typing import Any

from swarmbo.errors import AimWarning, SwarmboWarning


def tell_in_one_line() -> None:
    """Show each ``SwarmboWarning`` as one line on standard error, until an enclosing ``catch_warnings()`` ends."""
    usual, told = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, SwarmboWarning):
            usual(message, category, *place, **more)
        elif (line := " ".join(str(message).split())) not in told:
            told.add(line)
            sys.stderr.write(f"swarmbo: {line}\n")

    warnings.simplefilter("always", AimWarning)  # even if warnings are errors: a misfit stops no run
    warnings.showwarning = show

"""Exceptions of swarmbo. A message has the error, the value, what is wanted, and the fix.

They are for bad input only: numerical trouble and failed measurements are reported as values.
"""

import importlib
import re
from typing import Any


class SwarmboError(Exception):
    """Base of every exception that swarmbo raises on purpose.

    Example:
        >>> import swarmbo as sb
        >>> try:
        ...     sb.Team.for_field(["a", "a"], low=[0.0], high=[1.0])
        ... except sb.SwarmboError as error:
        ...     print(error)
        $.agents: got the agent 'a' more than once; wanted no name twice
    """


class ConfigError(SwarmboError, ValueError):
    """A setting or a scenario file is wrong.

    Args:
        message: Error, without its location.
        at: Location as a path from the top of the input: ``$.environment.robots``.
    """

    def __init__(self, message: str, at: str = "$") -> None:
        super().__init__(message)
        self.message = message
        self.at = at

    def __str__(self) -> str:
        return self.message if self.at == "$" else f"{self.at}: {self.message}"


class MissingPackageError(ConfigError, ImportError):
    """A package of an optional extra is not installed."""


class ShapeError(SwarmboError, ValueError):
    """An array has the wrong shape, or holds values that are not numbers."""


class OwnershipError(SwarmboError, ValueError):
    """A factor or a variable has no single owner, or an agent acts on one that it does not own."""


class BudgetError(SwarmboError, ValueError):
    """An exact method would need more memory than the stated budget."""


class TransportError(SwarmboError, OSError):
    """A message cannot be carried: an agent is unknown, or no path of links leads to the recipient."""


class UnknownQueryError(SwarmboError, KeyError):
    """An outcome was told for a query that was never made or was given up, or for a channel that the query lacks."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConflictError(SwarmboError, ValueError):
    """An outcome was told for a query that has a different one already; the message has both.

    Telling the same outcome or failure again is not an error and changes nothing.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(None, {"x": (0.0, 1.0)})
        >>> query = team.ask()
        >>> for outcome in (2.0, 2.0, 3.0):
        ...     try:
        ...         team.tell(query, outcome)
        ...     except ValueError as error:
        ...         print(error)
        query 'q00001': got the total 3.0; recorded before: 2.0
    """


class StateVersionError(SwarmboError, ValueError):
    """A saved state was written by an incompatible version."""


class LostStateError(SwarmboError, ValueError):
    """An agent returned without its state; others have its old measurements, so new ones cannot be told apart."""


class OwnCodeError(SwarmboError, RuntimeError):
    """A user's own code that a scenario names raised an exception; the message has the method and the location."""


class EvaluationError(SwarmboError, RuntimeError):
    """An evaluation failed in a run that stops at failures."""


class RunFolderError(SwarmboError, OSError):
    """A run folder is missing, damaged or in use, or holds no run or another run."""


class UnwritableError(RunFolderError):
    """A file of a run cannot be written, for instance because the disk is full. What was logged is safe."""


class SwarmboWarning(UserWarning):
    """Base of the warnings of swarmbo; on the command line each is one line on standard error."""


class AimWarning(SwarmboWarning):
    """A stated acquisition has another aim than the field's task."""


class CompilingWarning(SwarmboWarning):
    """The preferred folder for compiled code is not writable, so the next process may have to compile again."""


class DataWarning(SwarmboWarning):
    """Data were changed or are not shown completely, such as rows that are left out; the message has the reason."""


def typed(path: object) -> str:
    """Path as it is typed in a command: in quotes, if a shell would split or change it."""
    return f'"{path}"' if re.search(r"[^\w@%+=:,./~\\-]", str(path)) else str(path)


def needed(module: str, extra: str, what: str, at: str = "$") -> Any:
    """Import a module of an extra, untyped, as type checks must not depend on installed packages.

    ``what`` names the feature that needs it, and ``extra`` the argument of ``pip install "swarmbo[extra]"``.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        got = f"{what} needs the package {missing!r}, which is not installed"
        raise MissingPackageError(f'{got}; pip install "swarmbo[{extra}]"', at=at) from None

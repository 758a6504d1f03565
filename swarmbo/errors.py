"""The exceptions that swarmbo raises. A message says what is wrong, what was got, what is wanted, and the fix.

Numerical trouble and failed measurements are reported as values, never raised; these are for bad input only.
"""


class SwarmboError(Exception):
    """Base of every exception that swarmbo raises on purpose.

    Example:
        >>> import swarmbo as sb
        >>> try:
        ...     sb.Team.for_field(["a", "a"], low=[0.0], high=[1.0])
        ... except sb.SwarmboError as error:
        ...     print(error)
        $.agents: got ['a', 'a']; wanted at least one agent, no name twice
    """


class ConfigError(SwarmboError, ValueError):
    """A setting or a scenario file is wrong.

    Args:
        message: What is wrong, without the place.
        at: Where, as a path from the top of what was given: ``$.environment.robots``.
    """

    def __init__(self, message: str, at: str = "$") -> None:
        super().__init__(message)
        self.message = message
        self.at = at

    def __str__(self) -> str:
        return self.message if self.at == "$" else f"{self.at}: {self.message}"


class MissingPackageError(ConfigError, ImportError):
    """A package that only an extra brings is not installed."""


class ShapeError(SwarmboError, ValueError):
    """An array has the wrong shape, or holds values that are not numbers."""


class OwnershipError(SwarmboError, ValueError):
    """A factor or a variable lacks its one owner, or an agent acts on what it does not own."""


class BudgetError(SwarmboError, ValueError):
    """An exact method would need more memory than the stated budget."""


class TransportError(SwarmboError, OSError):
    """A message cannot be carried: unknown agent, or no path of links to the recipient."""


class UnknownQueryError(SwarmboError, KeyError):
    """An outcome was told for a query that was never asked, or was told already."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StateVersionError(SwarmboError, ValueError):
    """A saved state was written by an incompatible version."""


class LostStateError(SwarmboError, ValueError):
    """An agent came back without its state, and others know of readings it had: new ones can't be told from them."""


class OwnCodeError(SwarmboError, RuntimeError):
    """Code of a user's own that a scenario names raised something; the message says which method, and where."""


class RunFolderError(SwarmboError, OSError):
    """A run folder is missing, incomplete or holds something else than a run."""


class SwarmboWarning(UserWarning):
    """Base of what swarmbo warns of; on the command line each is one line on standard error."""


class AimWarning(SwarmboWarning):
    """An acquisition that was stated looks for something else than the field is watched for.

    Example:
        >>> import warnings
        >>> from swarmbo.errors import AimWarning
        >>> warnings.simplefilter("ignore", AimWarning)  # who compares methods
    """


class CompilingWarning(SwarmboWarning):
    """Compiled code is not kept where the next process looks first, so that this may have to compile it again."""


class DataWarning(SwarmboWarning):
    """Data were not taken as they are, or not shown as they could be: rows or a film are left out, say.

    The message says which and why.

    Example:
        >>> import warnings
        >>> from swarmbo.errors import DataWarning
        >>> warnings.simplefilter("ignore", DataWarning)  # who knows the data well
    """

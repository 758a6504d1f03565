"""How shapes of arrays are checked while tests run; docs/contributing.md has the command."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException

_check: Any = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number will do for a float


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that checks its arguments; as it is where one is of a type that cannot be checked, such as ``Self``."""
    try:
        return _check(function)
    except BeartypeDecorHintException:
        return function

"""How shapes of arrays are checked while tests run; docs/contributing/contributing.md has the command."""

from collections.abc import Callable
from typing import Any

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.roar import BeartypeDecorHintException

# NumPy's numbers will do for Python's, and a whole number for a float: it is shapes that are checked.
_LIKE = FrozenDict({int: int | np.integer, float: float | int | np.floating | np.integer, bool: bool | np.bool_})
_check: Any = beartype(conf=BeartypeConf(hint_overrides=_LIKE))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that checks its arguments; itself where one is of a type that cannot be checked, such as ``Self``."""
    try:
        return _check(function)
    except BeartypeDecorHintException:
        return function

"""How shapes of arrays are checked while tests run; docs/contributing/contributing.md has the command."""

from collections.abc import Callable
from typing import Any

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.roar import BeartypeDecorHintException

# NumPy numbers are accepted for Python numbers, and integers for floats: only shapes are checked.
_LIKE = FrozenDict({int: int | np.integer, float: float | int | np.floating | np.integer, bool: bool | np.bool_})
_check: Any = beartype(conf=BeartypeConf(hint_overrides=_LIKE))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that checks its arguments; the given one if a type cannot be checked, such as ``Self``."""
    try:
        return _check(function)
    except BeartypeDecorHintException:
        return function

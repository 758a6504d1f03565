"""A belief's state as JSON data and arrays, exact to the bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.errors import StateVersionError

_VERSION = 5  # 5: rounds by that name


def write_state(plain: Mapping[str, Any], arrays: Mapping[str, Float[np.ndarray, "..."]]) -> dict[str, Any]:
    """The state as ``{"json": {...}, "arrays": {name: array}}``; the arrays are copies in their own memory order."""
    return {
        "json": {"version": _VERSION, **plain},
        "arrays": {name: array.copy(order="K") for name, array in arrays.items()},
    }


def read_state(
    state: Mapping[str, Any], names: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Float[np.ndarray, "..."]]]:
    """The JSON data and the named arrays of a state that ``write_state`` made, perhaps after a trip through files.

    Raises:
        StateVersionError: If another version wrote it.
    """
    plain = dict(state["json"])
    if plain.get("version") != _VERSION:
        raise StateVersionError(
            f"belief state: got version {plain.get('version')}; wanted {_VERSION}, the version that reads it"
        )
    # always one memory order, whatever the file kept: so BLAS is called in the same way
    return plain, {name: np.array(state["arrays"][name], dtype=float, order="C") for name in names}

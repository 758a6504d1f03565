"""Map error: how far the belief's mean is from the field."""

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ShapeError


def map_rmse(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> float:
    """Root mean squared error of a map, in the unit of the outcome.

    Args:
        mean: The belief's mean at the evaluation points (m,).
        values: The noise-free field there (m,).

    Raises:
        ShapeError: If they are not two equal vectors with at least one entry.

    Example:
        >>> map_rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        1.4142135623730951
    """
    if mean.ndim != 1 or mean.shape != values.shape or not mean.size:
        raise ShapeError(f"got shapes {mean.shape} and {values.shape}; wanted two equal vectors")
    return float(np.sqrt(np.mean((mean - values) ** 2)))

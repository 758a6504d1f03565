"""Map error: how far the belief's mean is from the field, and from saying where it exceeds a level."""

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
    _require_equal_vectors(mean, values)
    return float(np.sqrt(np.mean((mean - values) ** 2)))


def level_f1(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"], level: float) -> float:
    """F1 score of the places where a map exceeds a level: harmonic mean of precision and recall, from 0 to 1.

    Source: Gotovos, Casati, Hitz & Krause 2013, Active learning for level set estimation, section 5.

    Args:
        mean: The belief's mean at the evaluation points (m,).
        values: The noise-free field there (m,).
        level: In the unit of the outcome.

    Returns:
        1 where neither the map nor the field exceeds the level anywhere.

    Raises:
        ShapeError: If they are not two equal vectors with at least one entry.

    Example:
        >>> round(level_f1(np.array([1.0, 3.0, 3.0]), np.array([1.0, 1.0, 4.0]), 2.0), 3)
        0.667
    """
    _require_equal_vectors(mean, values)
    said, true = mean > level, values > level
    total = int(said.sum() + true.sum())
    return 2.0 * int((said & true).sum()) / total if total else 1.0


def _require_equal_vectors(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> None:
    if mean.ndim != 1 or mean.shape != values.shape or not mean.size:
        raise ShapeError(f"got shapes {mean.shape} and {values.shape}; wanted two equal vectors")

"""Passages that the cells of a map shut, although the regions beside them leave room."""

import numpy as np
from jaxtyping import Bool, Int
from scipy.ndimage import distance_transform_edt, label

from swarmbo_envs.ground.grid import Ground

_FINEST = 512  # finer cells along the map's longer side: of what is narrower than two of them nothing is said
_AROUND = np.ones((3, 3), dtype=int)  # what is blocked hangs together by corners, too: nobody drives between


def widest_shut(ground: Ground) -> float | None:
    """About how wide the widest passage is that is shut by how large cells are, m; None where none is.

    A passage is shut where cells join what lies apart, obstacles or one and the edge of the map, or part what hangs
    together.

    Args:
        ground: With its regions.

    Example:
        >>> from swarmbo_envs.ground import Ground, read_regions
        >>> low, high = np.zeros(2), np.array([100.0, 100.0])
        >>> walls = [[[48, 0], [52, 0], [52, 45], [48, 45]], [[48, 55], [52, 55], [52, 100], [48, 100]]]
        >>> regions = read_regions([{"corners": wall} for wall in walls], low, high)
        >>> round(widest_shut(Ground(low, high, regions, cells=8)))
        10
        >>> widest_shut(Ground(low, high, regions, cells=40)) is None
        True
    """
    factor = _FINEST // int(max(ground.shape))
    if ground.is_open or factor < 2:
        return None
    cells = np.pad(np.kron(ground.touched(), np.ones((factor, factor), dtype=bool)), 1, constant_values=True)
    fine = np.pad(ground.touched(factor), 1, constant_values=True)
    if not _is_shut(fine, cells):
        return None
    away = distance_transform_edt(~fine, sampling=ground.cell[::-1] / factor)
    side = float(ground.cell.max()) / factor
    shut, open_ = 0, 2 * factor  # in finer cells, by which regions are wider: what is shut then, and what is not
    while open_ - shut > 1:
        middle = (shut + open_) // 2
        if _is_shut(away <= middle * side, cells):
            shut = middle
        else:
            open_ = middle
    return (2 * shut + 1) * side


def _is_shut(fine: Bool[np.ndarray, "rows columns"], cells: Bool[np.ndarray, "rows columns"]) -> bool:
    """Whether cells join parts of what is blocked, or part what is free."""
    return _joins(cells, cells & fine, _AROUND) or _joins(~(cells & fine), ~cells, None)


def _joins(
    whole: Bool[np.ndarray, "rows columns"],
    parts: Bool[np.ndarray, "rows columns"],
    around: Int[np.ndarray, "3 3"] | None,
) -> bool:
    """Whether something that hangs together holds several parts of what lies in it."""
    (inner, n), (outer, _) = label(parts, around), label(whole, around)
    holder = np.zeros(n + 1, dtype=int)
    holder[inner.ravel()] = outer.ravel()
    return len(np.unique(holder[1:])) < n

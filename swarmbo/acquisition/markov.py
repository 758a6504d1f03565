"""The Markov approximation of a batch's information gain (Daxberger & Low 2017, section 3).

A batch of N blocks has Psi = I + Sigma / s^2, with Sigma the posterior covariance and s^2 the noise variance. Its
information gain is 0.5 log|Psi|. Order B conditions each block on the next B blocks only; the sum then splits into
local terms, one per block, which is what lets each agent own one of them. It over-states the gain (by exactly
KL(Psi, Psi_bar)), the less so the larger B.
"""

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ShapeError


def _block_slices(Psi: Float[np.ndarray, "n n"], n_blocks: int) -> list[slice]:
    n = len(Psi)
    if Psi.shape != (n, n) or n_blocks < 1 or n % n_blocks:
        raise ShapeError(f"got Psi of shape {Psi.shape} and {n_blocks} blocks; wanted a square matrix of equal blocks")
    size = n // n_blocks
    return [slice(i * size, (i + 1) * size) for i in range(n_blocks)]


def _successors(blocks: list[slice], n: int, order: int) -> slice:
    last = min(n + order, len(blocks) - 1)
    return slice(blocks[n].stop, blocks[last].stop)


def conditional_block(Psi: Float[np.ndarray, "n n"], n_blocks: int, order: int, n: int) -> Float[np.ndarray, "b b"]:
    """Psi of block n given its next ``order`` blocks (eq. (3)); for the last block Psi_NN itself.

    Args:
        Psi: I + posterior covariance / noise variance of the whole batch.
        n_blocks: Number of equal blocks N.
        order: Markov order B >= 0.
        n: Which block, counted from 0.
    """
    blocks = _block_slices(Psi, n_blocks)
    own, after = blocks[n], _successors(blocks, n, order)
    cross = Psi[own, after]
    return Psi[own, own] - cross @ np.linalg.solve(Psi[after, after], cross.T)


def log_det_terms(Psi: Float[np.ndarray, "n n"], n_blocks: int, order: int) -> Float[np.ndarray, " n_blocks"]:
    """log|Psi_nn given its next B blocks| for each block n; they sum to log|Psi_bar| (propositions 1 and 2).

    Example:
        >>> import numpy as np
        >>> Psi = np.array([[2.0, 0.5], [0.5, 2.0]])
        >>> bool(np.isclose(log_det_terms(Psi, n_blocks=2, order=1).sum(), np.log(np.linalg.det(Psi))))
        True
    """
    return np.array([np.linalg.slogdet(conditional_block(Psi, n_blocks, order, n))[1] for n in range(n_blocks)])


def markov_approximation(Psi: Float[np.ndarray, "n n"], n_blocks: int, order: int) -> Float[np.ndarray, "n n"]:
    """Psi_bar: equal to Psi inside the B-block band, outside by recursion through the next B blocks (eq. (4)).

    Its inverse is B-block-banded, and of all such matrices it is the closest to Psi in KL divergence.
    """
    blocks = _block_slices(Psi, n_blocks)
    Psi_bar = Psi.copy()
    for distance in range(order + 1, n_blocks):
        for n in range(n_blocks - distance):
            own, after, far = blocks[n], _successors(blocks, n, order), blocks[n + distance]
            Psi_bar[own, far] = Psi[own, after] @ np.linalg.solve(Psi[after, after], Psi_bar[after, far])
            Psi_bar[far, own] = Psi_bar[own, far].T
    return Psi_bar


def conditional_variances(
    covariances: list[list[Float[np.ndarray, "_ _"]]], variances: list[Float[np.ndarray, " _"]]
) -> np.ndarray:
    """Variance of one point given B others, for every combination of candidates of all of them at once.

    Args:
        covariances: covariances[i][j], j > i, between the candidates of agent i (rows) and agent j (columns).
        variances: variances[i] (C_i,) of the candidates of agent i. Agent 0 is conditioned on agents 1 … B.

    Returns:
        A table with one axis per agent: entry (c_0, …, c_B) is Var[x_0 = c_0 | x_1 = c_1, …, x_B = c_B].
        Only sums and products of single entries are taken, so that a table never depends on what is computed beside it.
    """
    n = len(variances)

    def on_axes(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        shape = [1] * n
        for size, axis in zip(array.shape, axes, strict=True):
            shape[axis] = size
        return array.reshape(shape)

    given = {(i, j): on_axes(covariances[i][j], (i, j)) for i in range(n) for j in range(i + 1, n)}
    given |= {(i, i): on_axes(variances[i], (i,)) for i in range(n)}
    for k in range(n - 1, 0, -1):  # condition on the last first: each step's Schur complement keeps the rest
        for i in range(k):
            for j in range(i, k):
                given[i, j] = given[i, j] - given[i, k] * given[j, k] / given[k, k]
    return np.broadcast_to(given[0, 0], tuple(len(variance) for variance in variances))

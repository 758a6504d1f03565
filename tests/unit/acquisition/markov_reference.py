"""The Markov approximation of a batch's information gain by whole matrices, as it is printed (eqs. (3) and (4))."""

import numpy as np


def _block_slices(Psi: np.ndarray, n_blocks: int) -> list[slice]:
    n = len(Psi)
    size = n // n_blocks
    return [slice(i * size, (i + 1) * size) for i in range(n_blocks)]


def _successors(blocks: list[slice], n: int, order: int) -> slice:
    last = min(n + order, len(blocks) - 1)
    return slice(blocks[n].stop, blocks[last].stop)


def conditional_block(Psi: np.ndarray, n_blocks: int, order: int, n: int) -> np.ndarray:
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


def log_det_terms(Psi: np.ndarray, n_blocks: int, order: int) -> np.ndarray:
    """log|Psi_nn given its next B blocks| for each block n; they sum to log|Psi_bar| (propositions 1 and 2)."""
    return np.array([np.linalg.slogdet(conditional_block(Psi, n_blocks, order, n))[1] for n in range(n_blocks)])


def markov_approximation(Psi: np.ndarray, n_blocks: int, order: int) -> np.ndarray:
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

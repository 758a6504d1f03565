"""The Markov approximation of a batch's information gain (Daxberger & Low 2017, section 3).

A batch of N blocks has Psi = I + Sigma / s^2, with Sigma the posterior covariance and s^2 the noise variance. Its
information gain is 0.5 log|Psi|. Order B conditions each block on the next B blocks only; the sum then splits into
local terms, one per block, which is what lets each agent own one of them. It over-states the gain (by exactly
KL(Psi, Psi_bar)), the less so the larger B.
"""

import numpy as np
from jaxtyping import Float


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

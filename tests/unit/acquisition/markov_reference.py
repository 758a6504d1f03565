"""Terms of the Markov approximation of a batch's information gain, by whole matrices, as they are printed."""

import numpy as np


def log_det_terms(Psi: np.ndarray, order: int) -> np.ndarray:
    """log|Psi_nn given its next B rows| for each row n (Daxberger & Low 2017, eq. (3) and propositions 1 and 2).

    Args:
        Psi: I + posterior covariance / noise variance of the whole batch.
        order: Markov order B >= 0.
    """
    terms = list[float]()
    for n in range(len(Psi)):
        after = slice(n + 1, n + 1 + order)
        terms.append(np.log(Psi[n, n] - Psi[n, after] @ np.linalg.solve(Psi[after, after], Psi[after, n])))
    return np.array(terms)

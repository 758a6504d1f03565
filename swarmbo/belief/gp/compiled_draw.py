"""Functions drawn from priors, as sums of waves, in one compiled pass. Import it late: numba is slow to load.

They are right to 1e-8 of the draw.
"""

import math

import numpy as np
from jaxtyping import Float
from numba.core import types

from swarmbo.boundary.compiling import LANES, compiled, read_only

_QUARTERS, _HIGH, _LOW = 2.0 / math.pi, 1.57079632673412561417e00, 6.07710050650619224932e-11  # of a turn, pi / 2
_2, _3, _4, _5, _6, _7, _8, _9, _10 = (1.0 / math.factorial(n) for n in range(2, 11))


@compiled(
    types.void(
        types.boolean, read_only(3), read_only(3), read_only(3), types.float64[:, ::1], types.float64[:, :, ::1],
    ),
    nogil=True, fastmath=LANES,
)  # fmt: skip
def put_waves(
    has_gradient: bool,
    X: Float[np.ndarray, "g m c"],
    frequencies: Float[np.ndarray, "g c D"],
    weights: Float[np.ndarray, "g 2 D"],
    value: Float[np.ndarray, "g m"],
    gradient: Float[np.ndarray, "g m a"],
) -> None:
    """Sums of sines and cosines, and their gradients.

    Phases are taken to within an eighth of a turn of a multiple of a quarter; what is left of the series that stand for
    sine and cosine there is below 2e-9. Nothing branches or is called, so that loops run in lanes.
    """
    g, m, c = X.shape
    a, D = gradient.shape[2], frequencies.shape[2]
    phase, slope = np.empty(D), np.empty(D)
    for f in range(g):
        of_sine, of_cosine = weights[f, 0], weights[f, 1]
        for p in range(m):
            phase[:] = 0.0
            for d in range(c):
                x, by = X[f, p, d], frequencies[f, d]
                for i in range(D):
                    phase[i] += x * by[i]
            summed = 0.0
            for i in range(D):
                n = math.floor(phase[i] * _QUARTERS + 0.5)
                r = (phase[i] - n * _HIGH) - n * _LOW
                quarter = n - 4.0 * math.floor(0.25 * n)
                s = r * r
                sine = r * (1.0 - s * (_3 - s * (_5 - s * (_7 - s * _9))))
                cosine = 1.0 - s * (_2 - s * (_4 - s * (_6 - s * (_8 - s * _10))))
                is_odd = quarter == 1.0 or quarter == 3.0
                first, second = (cosine, sine) if is_odd else (sine, cosine)
                first = -first if quarter >= 2.0 else first
                second = -second if quarter == 1.0 or quarter == 2.0 else second
                summed += first * of_sine[i] + second * of_cosine[i]
                slope[i] = second * of_sine[i] - first * of_cosine[i]
            value[f, p] = summed
            if has_gradient:
                for d in range(a):
                    by, pulled = frequencies[f, d], 0.0
                    for i in range(D):
                        pulled += slope[i] * by[i]
                    gradient[f, p, d] = pulled

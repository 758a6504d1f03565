"""Inverses of Cholesky factors that grow row by row, and drawn functions. Import it late: numba is slow to load.

With k the covariances of an observation with all before it, v = L⁻¹ k and s its own variance, noise included,

    pivot² = s - |v|²,        new row of L⁻¹ = (-vᵀ L⁻¹, 1) / pivot

So rows are bit-identical whether they are added one by one or together, and L itself is not needed.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int
from numba.core import types

from swarmbo.belief.gp.cholesky import EPSILON
from swarmbo.belief.gp.triangular_steps import row_of
from swarmbo.boundary.compiling import LANES, compiled, read_only
from swarmbo.kernels.compiled import GIVEN, radial

Vector = Float[np.ndarray, " T"]
Addresses = Int[np.ndarray, " n"]  # of blocks of rows
_COUNTS, _ADDRESSES = read_only(1, types.int64), read_only(1, types.uint64)
_VECTOR, _MATRIX, _CUBE = map(read_only, (1, 2, 3))
_INT, _FLAGS, _OUT, _PUT = types.int64, types.boolean[::1], types.float64[::1], types.float64[:, ::1]


@compiled(types.void(_ADDRESSES, _INT, _INT, _INT, _VECTOR, _OUT, _OUT), fastmath=LANES)
def follow(
    blocks: Addresses, latent: int, followed: int, known: int, residual: Vector, whitened: Vector, alpha: Vector
) -> None:
    """Add outcomes from ``followed`` to ``known`` to whitened = L⁻¹ residual and alpha = L⁻ᵀ whitened of one latent."""
    whitened[followed:], alpha[followed:] = 0.0, 0.0
    for i in range(followed, known):
        own, summed = row_of(blocks, latent, i), 0.0
        for m in range(i + 1):
            summed += own[m] * residual[m]
        whitened[i] = summed
        for m in range(i + 1):
            alpha[m] += summed * own[m]


@compiled(
    types.void(*[_COUNTS] * 6, _CUBE, _INT, _CUBE, _VECTOR, _MATRIX, _MATRIX, _ADDRESSES, _PUT, _PUT, _FLAGS, _PUT),
    fastmath=LANES,
)
def grow(
    latents: Int[np.ndarray, " g"],
    kernels: Int[np.ndarray, " g"],
    starts: Int[np.ndarray, " g"],
    ends: Int[np.ndarray, " g"],
    followed: Int[np.ndarray, " g"],
    known: Int[np.ndarray, " g"],
    Zt: Float[np.ndarray, "g a T"],
    first: int,
    given: Float[np.ndarray, "g n T"],
    outputscales: Float[np.ndarray, " g"],
    noise: Float[np.ndarray, "k T"],
    residuals: Float[np.ndarray, "k T"],
    blocks: Addresses,
    whitened: Float[np.ndarray, "k T"],
    alpha: Float[np.ndarray, "k T"],
    is_sound: Bool[np.ndarray, " k"],
    work: Float[np.ndarray, "4 T"],
) -> None:
    """Append rows to L⁻¹ of g of k latents, then continue ``whitened`` and ``alpha`` (``follow``).

    Arguments with g entries are in the order of ``latents``. L⁻¹ grows from ``starts`` to ``ends`` rows; ``known``
    observations have outcomes, ``followed`` of them are in ``whitened`` and ``alpha``. ``Zt`` are coordinates in
    lengthscales. For kernels with code ``GIVEN``, ``given`` holds correlations of observation ``first`` and later ones
    with all. ``blocks`` holds the addresses of the rows of all L⁻¹, whose upper triangles are 0. A latent ``is_sound``
    if all pivots are above rounding errors; otherwise its rows are invalid.
    """
    squares, near, slope, row = work[0], work[1], work[2], work[3]
    for g in range(len(latents)):
        f, output = latents[g], outputscales[g]
        is_sound[f] = True
        for i in range(starts[g], ends[g]):
            square, covariance, new = squares[:i], near[:i], row[:i]
            new[:] = 0.0
            if kernels[g] == GIVEN:
                for j in range(i):
                    covariance[j] = output * given[g, i - first, j]
            else:
                square[:] = 0.0
                for d in range(Zt.shape[1]):
                    z, at = Zt[g, d], Zt[g, d, i]
                    for j in range(i):
                        square[j] += (at - z[j]) ** 2
                radial(kernels[g], square, output, covariance, slope[:i])
            explained = 0.0
            for j in range(i):
                old, v = row_of(blocks, f, j), 0.0
                for m in range(j + 1):
                    v += old[m] * covariance[m]
                explained += v * v
                for m in range(j + 1):
                    new[m] += v * old[m]
            own = output + noise[f, i]
            pivot = own - explained
            if not pivot > (i + 1) * EPSILON * own:  # the same limit whether rows are added singly or together
                is_sound[f] = False
                break
            root, put = math.sqrt(pivot), row_of(blocks, f, i)
            for m in range(i):
                put[m] = -new[m] / root
            put[i] = 1.0 / root
        if is_sound[f]:
            follow(blocks, f, followed[g], known[g], residuals[f], whitened[f], alpha[f])


_QUARTERS, _HIGH, _LOW = 2.0 / math.pi, 1.57079632673412561417e00, 6.07710050650619224932e-11  # pi / 2 in two parts
_2, _3, _4, _5, _6, _7, _8, _9, _10 = (1.0 / math.factorial(n) for n in range(2, 11))


@compiled(types.void(types.boolean, _CUBE, _CUBE, _CUBE, _PUT, types.float64[:, :, ::1], _PUT), fastmath=LANES)
def put_waves(
    has_gradient: bool,
    X: Float[np.ndarray, "g m c"],
    frequencies: Float[np.ndarray, "g c D"],
    weights: Float[np.ndarray, "g 2 D"],
    value: Float[np.ndarray, "g m"],
    gradient: Float[np.ndarray, "g m a"],
    work: Float[np.ndarray, "2 D"],
) -> None:
    """Put sums of sines and cosines, and gradients in the first a of c coordinates, to 2e-9. Loops do not branch."""
    g, m, c = X.shape
    a, D = gradient.shape[2], frequencies.shape[2]
    phase, slope = work[0], work[1]
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

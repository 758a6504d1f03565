"""Posteriors of latents with their own outcomes, for many latents at once; only the rows of L⁻¹ are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist

from swarmbo.belief.gp.cholesky import ROWS, BlockRows, Factorised, inverted
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, Scopes
from swarmbo.belief.gp.observations import Observations, factor_covariance
from swarmbo.graph.factor_graph import grouped
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.kernels.threads import in_threads

_AT_ONCE = 64  # latents whose points are gathered together


@dataclass(frozen=True, eq=False)
class Marginals:
    """Mean and variance (g, m), and their gradients (g, m, a); None if not requested."""

    mean: Float[np.ndarray, "g m"]
    var: Float[np.ndarray, "g m"]
    dmean: Float[np.ndarray, "g m a"] | None = None
    dvar: Float[np.ndarray, "g m a"] | None = None


@dataclass(frozen=True, eq=False)
class StackedParts:
    """Posterior data of k latents with up to T observations each, pending ones last; arrays are padded with 0.

    ``[i]`` is the factorisation of one latent, which is computed on each access. For many latents use the arrays.
    """

    entries: Int[np.ndarray, "k T"]  # indices of each latent's observations among all, in order
    counts: Int[np.ndarray, " k"]  # number of observations
    known: Int[np.ndarray, " k"]  # number of observations with outcomes
    residuals: Float[np.ndarray, "k T"]  # outcomes minus their prior means, standardised
    noise: Float[np.ndarray, "k T"]  # variances, standardised
    inverse: BlockRows  # L⁻¹ of each
    whitened: Float[np.ndarray, "k T"]  # L⁻¹ residual, 0 where pending
    alpha: Float[np.ndarray, "k T"]  # K⁻¹ residual of known observations, 0 where pending
    jitters: Float[np.ndarray, " k"]  # largest number added to an entry of each matrix's diagonal, relative to it

    @classmethod
    def of(
        cls, hyper: AdditiveHyperparameters, scopes: Scopes, data: Observations, base: "StackedParts | None" = None
    ) -> "StackedParts":
        """Factorise in compiled code, or extend a base.

        Correlations by a user's own kernel, or with a time axis, are computed here and passed as arrays. If a matrix is
        singular within rounding, LAPACK factorises it, with jitter on its diagonal.
        """
        from swarmbo.belief.gp import compiled  # late: numba is slow to load
        from swarmbo.kernels.compiled import CODES, GIVEN

        k = len(scopes)
        parts = cls._allocated(hyper, data, k, base)
        entries, counts, n_known = parts.entries, parts.counts, parts.known
        none = np.zeros(k, dtype=np.int64)
        starts, followed = (none, none) if base is None else (base.counts, base.known)
        codes = np.array([GIVEN if hyper.times else CODES.get(name, GIVEN) for name in hyper.kernels])
        addresses, first_row = parts.inverse.addresses, int(starts.min(initial=entries.shape[1]))
        outputs, is_sound = np.array(hyper.outputscales), np.ones(k, dtype=bool)
        for alike in grouped((len(scope), i) for i, scope in enumerate(scopes)).values():
            index = np.array(alike)
            columns = np.array([scopes[i] for i in alike])
            lengths = np.array([hyper.lengthscales[i] for i in alike])

            def put(rows: slice, index: Any = index, columns: Any = columns, lengths: Any = lengths) -> None:
                work = np.empty((4, entries.shape[1]))
                for first in range(rows.start, rows.stop, _AT_ONCE):
                    some = slice(first, min(first + _AT_ONCE, rows.stop))
                    latents = index[some]
                    points = data.places[data.row[entries[latents]][:, :, None], columns[some][:, None, :]]
                    Z = points / lengths[some][:, None, :]
                    given = _given(hyper, latents, Z, data.rounds[entries[latents]], first_row)
                    compiled.grow(
                        latents, codes[latents], starts[latents], counts[latents], followed[latents], n_known[latents],
                        np.ascontiguousarray(np.swapaxes(Z, 1, 2)), first_row, given, outputs[latents], parts.noise,
                        parts.residuals, addresses, parts.whitened, parts.alpha, is_sound, work,
                    )  # fmt: skip

            in_threads(len(index), put)
        for i in np.flatnonzero(~is_sound).tolist():
            parts._factorise_with_jitter(i, hyper, scopes[i], data.of_channel(i), base)
        return parts

    @classmethod
    def _allocated(
        cls, hyper: AdditiveHyperparameters, data: Observations, k: int, base: "StackedParts | None" = None
    ) -> "StackedParts":
        """Arrays with each latent's observations, and with the rows of L⁻¹ that a base has."""
        order = np.argsort(data.channel, kind="stable")
        channel = data.channel[order]
        counts = np.bincount(channel, minlength=k)
        slots = np.arange(len(order)) - (np.cumsum(counts) - counts)[channel]
        entries = np.zeros((k, int(counts.max(initial=0))), dtype=np.int64)
        entries[channel, slots] = order
        residuals, noise = np.zeros(entries.shape), np.zeros(entries.shape)
        is_known = ~np.isnan(data.outcome[order])
        residuals[channel, slots] = np.where(is_known, data.residuals(hyper)[order], 0.0)
        noise[channel, slots] = data.noise_variances(hyper)[order]
        n_known, T = np.bincount(channel[is_known], minlength=k), entries.shape[1]
        whitened, alpha, jitters = np.zeros((k, T)), np.zeros((k, T)), np.zeros(k)
        if base is None:
            return cls(entries, counts, n_known, residuals, noise, BlockRows.empty(k, T), whitened, alpha, jitters)
        whitened[:, : base.whitened.shape[1]], alpha[:, : base.alpha.shape[1]] = base.whitened, base.alpha
        inverse = BlockRows.empty(k, T, base.inverse, int(base.counts.min(initial=T)))
        return cls(entries, counts, n_known, residuals, noise, inverse, whitened, alpha, base.jitters.copy())

    def _factorise_with_jitter(
        self,
        i: int,
        hyper: AdditiveHyperparameters,
        scope: Sequence[int],
        own: Observations,
        base: "StackedParts | None",
    ) -> None:
        from swarmbo.belief.gp import compiled  # late: numba is slow to load

        K = factor_covariance(hyper, scope, i, own, own)
        K.flat[:: len(own) + 1] += own.noise_variances(hyper)
        r = 0 if base is None else int(base.counts[i])
        if base is None or not r:
            part = Factorised.of(K, np.zeros(len(K)))
        else:
            part = base[i].extended(K[r:, :r], K[r:, r:], None)
        T = self.entries.shape[1]
        square = np.zeros((1, T, T))
        square[0, : len(K), : len(K)] = part.inverse
        self.inverse.put(np.array([i]), square, r)
        rows, residual = self.inverse.addresses, self.residuals[i]
        compiled.follow(rows, i, 0, int(self.known[i]), residual, self.whitened[i], self.alpha[i])
        self.jitters[i] = part.jitter

    @property
    def fitted(self) -> Float[np.ndarray, "k T"]:
        """Posterior minus prior means (k, T) at each latent's observations, residual - N alpha, without jitter."""
        return self.residuals - self.noise * self.alpha

    @property
    def log_densities(self) -> Float[np.ndarray, " k"]:
        """Log density of each latent's residuals, none of which may be pending."""
        (k, T), blocks = self.entries.shape, self.inverse.blocks
        diagonals = [np.diagonal(block[:, :, -ROWS:], axis1=1, axis2=2) for block in blocks]
        diagonal = np.concatenate([np.empty((k, 0)), *diagonals], axis=1)[:, :T]
        logs = np.log(np.where(np.arange(T) < self.counts[:, None], diagonal, 1.0)).sum(axis=1)
        return -0.5 * (self.whitened**2).sum(axis=1) + logs - 0.5 * self.counts * np.log(2.0 * np.pi)

    def extended(self, hyper: AdditiveHyperparameters, scopes: Scopes, data: Observations) -> "StackedParts":
        """Factorisation of ``data``, which begins with the data factorised here."""
        return StackedParts.of(hyper, scopes, data, self)

    def solve(self, i: int, residual: Float[np.ndarray, " s"]) -> Float[np.ndarray, " n"]:
        """K⁻¹ r for other residuals r (s,) of a latent's s known observations; 0 for pending observations."""
        (inverse,) = self.inverse.squares(np.array([i]), len(residual))
        alpha = np.zeros(int(self.counts[i]))
        alpha[: len(residual)] = inverse.T @ (inverse @ residual)
        return alpha

    def __getitem__(self, i: int) -> Factorised:
        n, r = int(self.counts[i]), int(self.known[i])
        (inverse,) = self.inverse.squares(np.array([i]), n)
        L, whitened = np.asfortranarray(inverted(np.asfortranarray(inverse))), self.whitened[i, :n]
        residual = np.concatenate([self.residuals[i, :r], L[r:, :r] @ whitened[:r]])
        return Factorised(L, residual, whitened, self.alpha[i, :n], float(self.jitters[i]), inverse)


def _given(
    hyper: AdditiveHyperparameters,
    latents: Int[np.ndarray, " g"],
    Z: Float[np.ndarray, "g T a"],
    rounds: Float[np.ndarray, "k T"],
    first: int,
) -> Float[np.ndarray, "g _n T"]:
    """Correlations (g, n, T) of observations ``first``, ``first + 1``, … with all, for kernels of code ``GIVEN``."""
    numpy_latents = [i for i in latents.tolist() if hyper.times or hyper.kernels[i] not in KERNEL_NAMES]
    if not numpy_latents:
        return np.zeros((len(latents), 0, 0))
    out = np.zeros((len(latents), Z.shape[1] - first, Z.shape[1]))
    for place, i in enumerate(latents.tolist()):
        if i in numpy_latents:
            out[place] = correlation(hyper.kernels[i], cdist(Z[place, first:], Z[place]))
            if hyper.times:
                out[place] *= hyper.times[i].between(rounds[place, first:, None], rounds[place, None])
    return out

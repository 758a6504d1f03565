"""Test functions of which a seed draws a part: groups of variables, or the terms."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.kernels import draw
from swarmbo_envs.functions.additive_function import AdditiveFunction, Points, Term, Values, climb


def blocks(n_variables: int, size: int) -> dict[str, tuple[int, ...]]:
    """Scopes of factors of consecutive variables."""
    if size < 1 or n_variables < size or n_variables % size:
        raise ConfigError(f"got {n_variables} variables; wanted a multiple of {size}", at="$.environment.n_variables")
    return {f"f{i}": tuple(range(size * i, size * (i + 1))) for i in range(n_variables // size)}


def _log_mixture(X: Points, centres: Float[np.ndarray, "3 a"], variance: float) -> Values:
    squares = ((X[:, None, :] - centres) ** 2).sum(axis=-1)
    logs = np.log([0.1, 0.8, 0.1]) - 0.5 * squares / variance - 0.5 * X.shape[1] * np.log(2.0 * np.pi * variance)
    return np.maximum(np.logaddexp.reduce(logs, axis=1), -700.0)


def trimodal(n_variables: int = 10, size: int = 3, groups: int = 3, seed: int = 0) -> AdditiveFunction:
    """The additive test function of Add-GP-UCB (Kandasamy et al. 2015, eq. (7)), as in its code.

    ``groups`` disjoint groups of ``size`` variables, permuted by a seed; other variables have no effect. Each term is
    the logarithm of a mixture of three normal densities with weights 0.1, 0.8, 0.1 and variance 0.01 size^0.1, cut off
    at -700, on [-1, 1]. (In print the exponent's sign, the variance and the weights are wrong.) The stated maximum is
    that of the heavy component; the others add less than 1e-3 there in the nine settings of the paper.
    """
    if size < 2 or groups < 1 or size * groups > n_variables:
        got = f"got {groups} groups of {size}"
        raise ConfigError(f"{got}; wanted groups of >= 2 within {n_variables}", at="$.environment.size")
    variance = 0.01 * size**0.1
    heads = np.array([[0.62, -0.38], [0.18, 0.58], [-0.58, -0.56]])
    rest = np.array([-0.66, -0.19, 0.62])
    centres = np.column_stack([heads, np.repeat(rest[:, None], size - 2, axis=1)])
    term = partial(_log_mixture, centres=centres, variance=variance)
    order = stream(seed, "trimodal groups").permutation(n_variables)
    scopes = {f"f{i}": tuple(int(j) for j in order[size * i : size * (i + 1)]) for i in range(groups)}
    argmax = np.zeros(n_variables)
    argmax[order[: size * groups]] = np.tile(centres[1], groups)
    maximum = groups * float(np.log(0.8) - 0.5 * size * np.log(2.0 * np.pi * variance))
    low, high = np.full(n_variables, -1.0), np.ones(n_variables)
    name = f"trimodal ({n_variables}, {size}, {groups})"
    return AdditiveFunction(name, low, high, scopes, dict.fromkeys(scopes, term), argmax, maximum)


def additive_gp(n_variables: int = 6, size: int = 2, lengthscale: float = 0.3, seed: int = 0) -> AdditiveFunction:
    """A draw from an additive Gaussian process on [0, 1]^d: a chain of overlapping factors; its maximum is searched."""
    if not 1 <= size <= n_variables:
        raise ConfigError(f"got {size}; wanted 1 to {n_variables}", at="$.environment.size")
    if not 0.0 < lengthscale < np.inf:
        raise ConfigError(f"got {lengthscale}; wanted a finite number > 0", at="$.environment.lengthscale")
    starts = list(range(0, n_variables - size + 1, max(size - 1, 1)))
    if starts[-1] + size < n_variables:
        starts.append(n_variables - size)
    scopes = {f"f{i}": tuple(range(start, start + size)) for i, start in enumerate(starts)}
    lengths = np.full(size, lengthscale)
    terms: dict[str, Term] = {
        factor: draw(stream(seed, "additive draw", factor=factor), "matern52", lengths, 1.0 / len(scopes))
        for factor in scopes
    }
    low, high = np.zeros(n_variables), np.ones(n_variables)
    f = AdditiveFunction(f"draw of an additive GP, {n_variables} variables", low, high, scopes, terms)
    # best of climbs from the best 16 of 4,096 random points, and from the best 16 of those by ``_on_grid``
    groups = _on_grid(f), stream(seed, "additive draw search").random((_POINTS, n_variables))
    places = np.array([climb(f, x, range(n_variables)) for X in groups for x in X[np.argsort(-f.value(X))[:16]]])
    values = f.value(places)
    return replace(f, argmax=places[int(values.argmax())], maximum=float(values.max()))


_POINTS = 4096  # random points of a search, and points of a factor's grid
_WELL, _DEPTH = -2.903534027771177, 39.16616570377142  # coordinate and depth of the deeper well, per variable


def _turned_wells(X: Points, Q: Float[np.ndarray, "a a"]) -> Values:
    Z = X @ Q.T
    return -0.5 * (Z**4 - 16.0 * Z**2 + 5.0 * Z).sum(axis=1)


def wells(n_variables: int = 40, block: int = 2, seed: int = 0) -> AdditiveFunction:
    """Styblinski-Tang, negated, on [-5, 5]^d, each block of variables rotated by a random rotation.

    Every axis has two wells (here peaks), so a block has 2^block of them, of equal width; the deepest is at -2.9035 on
    all axes. A rotated block is not a sum over its variables. Rotations that would move the maximum out of the box are
    drawn again.
    """
    scopes = blocks(n_variables, block)
    if block > 20:  # blocks of 20: one of 60 rotations keeps the maximum in the box; blocks of 40: none of 7,000
        raise ConfigError(f"got blocks of {block} variables; wanted at most 20", at="$.environment.block")
    terms: dict[str, Term] = {}
    argmax, deepest = np.zeros(n_variables), np.full(block, _WELL)
    for factor, scope in scopes.items():
        rng = stream(seed, "wells", factor=factor)
        Q = np.linalg.qr(rng.standard_normal((block, block)))[0]
        while np.abs(Q.T @ deepest).max() > 4.8:
            Q = np.linalg.qr(rng.standard_normal((block, block)))[0]
        terms[factor], argmax[list(scope)] = partial(_turned_wells, Q=Q), Q.T @ deepest
    low, high = np.full(n_variables, -5.0), np.full(n_variables, 5.0)
    name = f"wells in {n_variables} variables, turned in blocks of {block}"
    return AdditiveFunction(name, low, high, scopes, terms, argmax, n_variables * _DEPTH, is_unbounded=True)


def _on_grid(f: AdditiveFunction) -> Float[np.ndarray, "g n"]:
    """Best point of a grid for each value of the first variable of a chain on [0, 1]^n, by dynamic programming."""
    scopes = list(f.scopes.values())
    size, shared = len(scopes[0]), [1, *(scope[-1] + 1 - next_scope[0] for scope, next_scope in pairwise(scopes))]
    u = np.linspace(0.0, 1.0, int(_POINTS ** (1.0 / size) + 1e-9))
    g, grid = len(u), np.stack(np.meshgrid(*[u] * size, indexing="ij"), axis=-1).reshape(-1, size)
    best, following, n_after = np.zeros(1), np.empty((1, 0)), 0
    for term, n_before in zip(reversed([*f.terms.values()]), reversed(shared), strict=True):
        # a factor shares its first variables with the factor before, its last ones with the factor after
        values = (term(grid).reshape(-1, g**n_after) + best).reshape(g**n_before, -1)
        row = np.arange(len(values)) * values.shape[1] + values.argmax(axis=1)
        best, following = values.max(axis=1), np.hstack([grid[row, n_before:], following[row % g**n_after]])
        n_after = n_before
    return np.column_stack([u, following])

"""Standard test functions as sums to be maximised, with verified maxima.

Formulas and optima are those of the papers, corrected where a paper misprints one; the docstring then says so. Terms
are functions of this module, so that a world of them can be pickled.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from swarmbo.errors import ConfigError
from swarmbo_envs.functions.additive_function import AdditiveFunction, Points, Term, Values
from swarmbo_envs.functions.drawn import additive_gp, blocks, trimodal, wells
from swarmbo_envs.functions.papers import network, push, rover


def _one_factor(
    name: str, term: Term, low: Any, high: Any, argmax: Any, maximum: float, everywhere: bool = False
) -> AdditiveFunction:
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    scope = {"f": tuple(range(len(low)))}
    return AdditiveFunction(name, low, high, scope, {"f": term}, np.array(argmax, dtype=float), maximum, everywhere)


def _equal_terms(
    name: str, term: Term, scopes: dict[str, tuple[int, ...]], low: float, high: float, maximum: float = 0.0
) -> AdditiveFunction:
    """A function of equal terms, defined everywhere, in a cube; its maximum is at 0."""
    n = sum(map(len, scopes.values()))
    terms, middle = dict.fromkeys(scopes, term), np.zeros(n)
    return AdditiveFunction(name, np.full(n, low), np.full(n, high), scopes, terms, middle, maximum, is_unbounded=True)


def _one_or_blocks(n_variables: int, size: int) -> dict[str, tuple[int, ...]]:
    return {"f": tuple(range(size))} if n_variables == size else blocks(n_variables, size)


_SHEKEL_B = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5])
_SHEKEL_ROWS = [[4] * 4, [1] * 4, [8] * 4, [6] * 4, [3, 7] * 2, [2, 9] * 2, [5, 5, 3, 3], [8, 1] * 2, [6, 2] * 2]
_SHEKEL_C = np.array([*_SHEKEL_ROWS, [7, 3.6] * 2])
_SHEKEL_ARGMAX = {
    5: (4.00003715, 4.00013328, 4.00003715, 4.00013328),
    7: (4.00057292, 4.00068937, 3.99948971, 3.99960616),
    10: (4.00074653, 4.00059293, 3.99966340, 3.99950980),
}


def _shekel(X: Points, m: int) -> Values:
    squares = ((X[:, None, :] - _SHEKEL_C[:m]) ** 2).sum(axis=-1)
    return (1.0 / (_SHEKEL_B[:m] + squares)).sum(axis=1)


def shekel(m: int = 10) -> AdditiveFunction:
    """Shekel's foxholes in 4 variables, m = 5, 7 or 10 wells (here peaks); row 7 of its centres is (5, 5, 3, 3)."""
    if m not in _SHEKEL_ARGMAX:
        raise ConfigError(f"got m = {m}; wanted 5, 7 or 10", at="$.environment.m")
    maximum = float(_shekel(np.array([argmax := _SHEKEL_ARGMAX[m]]), m)[0])
    return _one_factor(f"Shekel-{m}", partial(_shekel, m=m), np.zeros(4), np.full(4, 10.0), argmax, maximum)


_HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_ROWS = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
_HARTMANN_ROWS += [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
_HARTMANN_P = 1e-4 * np.array(_HARTMANN_ROWS)
_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_3_A = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
_HARTMANN_3_P = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
_HARTMANN_MAXIMA = {
    3: (3.8627797873327, (0.11458889, 0.55564890, 0.85254699)),
    6: (3.3223680114155147, (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054)),
}


def _hartmann(X: Points, n_variables: int, scale: float) -> Values:
    A, P = (_HARTMANN_A, _HARTMANN_P) if n_variables == 6 else (_HARTMANN_3_A, _HARTMANN_3_P)
    return scale * (np.exp(-(A * (X[:, None, :] - P) ** 2).sum(axis=-1)) @ _HARTMANN_WEIGHTS)


def hartmann(n_variables: int = 6, block: int = 6, largest: float = 1.0) -> AdditiveFunction:
    """Hartmann-6 or Hartmann-3, one factor for every ``block`` (6 or 3) variables.

    The factors are multiplied by numbers from 1 to ``largest``, evenly spaced in the logarithm. Maximum of one factor:
    3.32237 or 3.86278; the DuMBO paper's 10.5364 is a misprint (that is Shekel-10's).
    """
    if block not in _HARTMANN_MAXIMA or not largest >= 1.0:
        raise ConfigError(f"got block {block}, largest {largest}; wanted 3 or 6, and >= 1", at="$.environment.block")
    scopes = _one_or_blocks(n_variables, block)
    scales = np.geomspace(1.0, largest, len(scopes))
    terms: dict[str, Term] = {
        factor: partial(_hartmann, n_variables=block, scale=float(scale))
        for factor, scale in zip(scopes, scales, strict=True)
    }
    maximum, argmax = _HARTMANN_MAXIMA[block]
    low, high, place = np.zeros(n_variables), np.ones(n_variables), np.tile(argmax, len(scopes))
    return AdditiveFunction(f"Hartmann-{n_variables}", low, high, scopes, terms, place, maximum * float(scales.sum()))


def _michalewicz(X: Points, i: int, steepness: int) -> Values:
    return np.sin(X[:, 0]) * np.sin((i + 1) * X[:, 0] ** 2 / np.pi) ** (2 * steepness)


def michalewicz(n_variables: int = 10, steepness: int = 10) -> AdditiveFunction:
    """Michalewicz: Σ_i sin(x_i) sin(i x_i² / π)^(2m), one factor per variable; its maximum is searched."""
    if steepness < 1 or steepness % 1:
        raise ConfigError(f"got {steepness}; wanted an integer >= 1", at="$.environment.steepness")
    terms: dict[str, Term] = {}
    argmax, maximum = np.zeros(n_variables), 0.0
    grid = np.linspace(0.0, np.pi, 20_001)
    for i in range(n_variables):
        terms[f"f{i}"] = term = partial(_michalewicz, i=i, steepness=steepness)
        # narrow peaks fall between points of the grid; those on either side of pi/2 are the highest
        numbers = max(0, (i - 1) // 4) + np.array([0.5, 1.5])
        tops = np.array([grid[int(term(grid[:, None]).argmax())], *np.pi * np.sqrt(numbers / (i + 1))])
        for width in (1e-4, 1e-6, 1e-8):
            fine = np.clip(np.linspace(tops - 2 * width, tops + 2 * width, 4001), 0.0, np.pi)
            tops = np.take_along_axis(fine, term(fine.reshape(-1, 1)).reshape(fine.shape).argmax(axis=0)[None], 0)[0]
        values = term(tops[:, None])
        best = int((values > values.max() - 1e-12).argmax())  # the first, if only rounding differs
        argmax[i] = tops[best]
        maximum += float(values[best])
    scopes = {f"f{i}": (i,) for i in range(n_variables)}
    low, high = np.zeros(n_variables), np.full(n_variables, np.pi)
    return AdditiveFunction(f"Michalewicz-{n_variables}", low, high, scopes, terms, argmax, maximum)


def _camel_first(X: Points) -> Values:
    return -(4.0 - 2.1 * X[:, 0] ** 2 + X[:, 0] ** 4 / 3.0) * X[:, 0] ** 2


def _camel_both(X: Points) -> Values:
    return -X[:, 0] * X[:, 1]


def _camel_second(X: Points) -> Values:
    return -(4.0 * X[:, 0] ** 2 - 4.0) * X[:, 0] ** 2


def camel() -> AdditiveFunction:
    """Six-hump camel, negated: factors {x0}, {x0, x1}, {x1}."""
    terms: dict[str, Term] = {"first": _camel_first, "both": _camel_both, "second": _camel_second}
    scopes = {"first": (0,), "both": (0, 1), "second": (1,)}
    low, high = np.array([-3.0, -2.0]), np.array([3.0, 2.0])
    argmax = np.array([0.08984201, -0.71265640])
    return AdditiveFunction("six-hump camel", low, high, scopes, terms, argmax, 1.0316284534898774, is_unbounded=True)


def _powell(X: Points) -> Values:
    a, b, c, e = X.T
    return -((a + 10 * b) ** 2 + 5 * (c - e) ** 2 + (b - 2 * c) ** 4 + 10 * (a - e) ** 4)


def powell(n_variables: int = 24) -> AdditiveFunction:
    """Powell's singular function, negated, in blocks of 4; the DuMBO paper's eq. (66) lacks the brackets."""
    return _equal_terms(f"Powell-{n_variables}", _powell, blocks(n_variables, 4), -4.0, 5.0)


def _rastrigin(X: Points) -> Values:
    return -(10.0 * X.shape[1] + (X**2 - 10.0 * np.cos(2.0 * np.pi * X)).sum(axis=1))


def rastrigin(n_variables: int = 100, block: int = 5) -> AdditiveFunction:
    """Rastrigin, negated, in blocks of consecutive variables; the DuMBO paper's eq. (67) lacks the brackets."""
    return _equal_terms(f"Rastrigin-{n_variables}", _rastrigin, blocks(n_variables, block), -5.12, 5.12)


def _branin(X: Points) -> Values:
    x, y = X.T
    bowl = (y - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6) ** 2
    return -(bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10)


def branin() -> AdditiveFunction:
    """Branin-Hoo, negated, one factor; three maxima of -0.397887."""
    return _one_factor("Branin-Hoo", _branin, [-5.0, 0.0], [10.0, 15.0], [np.pi, 2.275], -0.39788735772973816)


def _gsobol(X: Points) -> Values:
    return -np.prod((np.abs(4.0 * X - 2.0) + 1.0) / 2.0, axis=1)


def gsobol(n_variables: int = 4) -> AdditiveFunction:
    """GSobol with a_i = 1 on [-5, 5]^d, negated, one factor: maximum -2^-d at 1/2 (the papers' domains differ)."""
    n = n_variables
    return _one_factor(f"gSobol-{n}", _gsobol, np.full(n, -5.0), np.full(n, 5.0), np.full(n, 0.5), -(2.0**-n), True)


def _ackley(X: Points, sign: float = 1.0) -> Values:
    root, waves = np.sqrt((X**2).mean(axis=1)), np.cos(2.0 * np.pi * X).mean(axis=1)
    return sign * (20.0 + np.e - 20.0 * np.exp(-0.2 * root) - np.exp(waves))


def ackley(n_variables: int = 5, block: int | None = None) -> AdditiveFunction:
    """Ackley, negated, on [-32.768, 32.768]^d; one factor, or one for every ``block`` variables; maximum 0 at 0."""
    n, edge = n_variables, 32.768
    scopes = _one_or_blocks(n, n if block is None else block)
    return _equal_terms(f"Ackley-{n}", partial(_ackley, sign=-1.0), scopes, -edge, edge)


def ackley_positive(n_variables: int = 5) -> AdditiveFunction:
    """Ackley itself, maximised on [0, 1]^5, as in the EGP-TS paper.

    Its maximum is 4.710965, with two coordinates at 1 and three at 0.5767; the paper states 4.6930 at a point with
    one coordinate at 1, where the maximum is 4.6926.
    """
    if n_variables != 5:
        raise ConfigError(f"got {n_variables}; wanted 5", at="$.environment.n_variables")
    c = 0.5766656274118777
    argmax = np.array([1.0, 1.0, c, c, c])
    return _one_factor("positive Ackley-5", _ackley, np.zeros(5), np.ones(5), argmax, float(_ackley(argmax[None])[0]))


def _zakharov(X: Points) -> Values:
    slope = X @ (0.5 * np.arange(1, X.shape[1] + 1))
    return -((X**2).sum(axis=1) + slope**2 + slope**4)


def zakharov(n_variables: int = 4) -> AdditiveFunction:
    """Zakharov, negated, one factor."""
    return _equal_terms(f"Zakharov-{n_variables}", _zakharov, {"f": tuple(range(n_variables))}, -5.0, 10.0)


def _drop_wave(X: Points) -> Values:
    square = (X**2).sum(axis=1)
    return (1.0 + np.cos(12.0 * np.sqrt(square))) / (0.5 * square + 2.0)


def drop_wave() -> AdditiveFunction:
    """Drop-wave in two variables; maximum 1 at 0."""
    return _equal_terms("Drop-wave", _drop_wave, {"f": (0, 1)}, -5.12, 5.12, maximum=1.0)


def _eggholder(X: Points) -> Values:
    x, y = X.T
    return (y + 47) * np.sin(np.sqrt(np.abs(y + x / 2 + 47))) + x * np.sin(np.sqrt(np.abs(x - y - 47)))


def eggholder() -> AdditiveFunction:
    """Eggholder, negated to a maximum of 959.6407 on the edge of its box."""
    argmax = [512.0, 404.23180498]
    return _one_factor("Eggholder", _eggholder, [-512.0, -512.0], [512.0, 512.0], argmax, 959.6406627208506)


_KNOWN = (
    *(ackley, ackley_positive, additive_gp, branin, camel, drop_wave, eggholder, gsobol),
    *(hartmann, michalewicz, powell, rastrigin, shekel, trimodal, wells, zakharov),
)
FUNCTIONS: dict[str, Callable[..., AdditiveFunction]] = {made.__name__.replace("_", "-"): made for made in _KNOWN}
SIMULATED: dict[str, Callable[..., AdditiveFunction]] = {"network": network, "push": push, "rover": rover}  # no maximum
_SEEDED = ("trimodal", "additive-gp", "wells", *SIMULATED)


def get(name: str, *, moved: bool = False, rescaled: bool = False, seed: int = 0, **settings: Any) -> AdditiveFunction:
    """A function of the library.

    Args:
        name: One of ``FUNCTIONS``, whose maxima are known, or of ``SIMULATED``.
        moved: Move the optimum; see ``AdditiveFunction.moved``.
        rescaled: Rescale the axes.
        seed: Seed of the function's randomness.
        **settings: Settings of the function itself, such as ``n_variables``.

    Raises:
        ConfigError: If there is no such function, or a setting is refused.

    Example:
        >>> f = get("powell", n_variables=8, moved=True, seed=1)
        >>> bool(abs(f.value(f.argmax[None])[0] - f.maximum) < 1e-9)
        True
    """
    makers = FUNCTIONS | SIMULATED
    if name not in makers:
        raise ConfigError(f"got {name!r}; wanted one of {', '.join(makers)}", at="$.environment.function")
    if name in _SEEDED:
        settings = {"seed": seed, **settings}
    try:
        if (n := settings.get("n_variables", 1)) < 1:
            raise ConfigError(f"got {n}; wanted an integer >= 1", at="$.environment.n_variables")
        function = makers[name](**settings)
    except TypeError as error:
        raise ConfigError(f"{name} does not take these settings: {error}", at="$.environment") from error
    function = function.moved(seed) if moved else function
    return function.rescaled(seed) if rescaled else function

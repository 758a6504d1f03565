"""A user's own kernels by name: registered, or named as ``"module:Class"`` and loaded if trusted."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo.registry import is_user_code, load_class, make
from swarmbo.settings import Settings, require

KernelName = str  # one of KERNEL_NAMES, a name that was registered, or "module:Class"
KERNEL_NAMES: tuple[KernelName, ...] = ("matern12", "matern32", "matern52", "rbf")  # those of ``compiled.radial``

Radial = Callable[[Float[np.ndarray, "..."]], Float[np.ndarray, "..."]]
Frequencies = Callable[[np.random.Generator, int, int], Float[np.ndarray, "k d"]]

_STEP = 1e-5  # step of central differences, whose error is then about 1e-10 for a correlation without kinks
_ALLOWED = 1e-6  # tolerated error of the stated functions
_DRAWS, _ALLOWED_OF_DRAWS = 16_384, 0.03  # tolerated error of a mean over draws; its standard error is at most 0.006


@dataclass(frozen=True, eq=False)
class OwnKernel:
    """A user's own stationary kernel; see ``register_kernel``."""

    correlation: Radial
    slope: Radial
    frequencies: Frequencies | None = None


_OWN: dict[KernelName, OwnKernel] = {}


def register_kernel(
    name: KernelName, *, correlation: Radial, slope: Radial, frequencies: Frequencies | None = None
) -> None:
    """Register your own stationary kernel under a name, in this process.

    Then all settings that take the name of a kernel accept this name. Every process that loads states or scenarios with
    this name must register the kernel first. Another kernel under the same name replaces the first. Beliefs made
    before keep results of the first kernel, so make new ones.

    Args:
        name: Any name except those of swarmbo's kernels.
        correlation: c(r), the correlation at distances r >= 0 in lengthscales, an array of any shape; c(0) = 1. It must
            be positive definite in the number of dimensions in which it is used; here this is checked in one dimension.
        slope: w(r) = -c'(r) / r, of the shape of r; finite at r = 0. If c has a kink at 0, return 0 there.
        frequencies: Function of ``(rng, k, d)`` that returns k frequencies v, an array (k, d), in radians per
            lengthscale. They are draws from the spectral density of the kernel: E cos(v·x) = c(|x|), which is checked
            in a plane. Only draws of functions need them.

    Raises:
        ConfigError: If the name is that of a swarmbo kernel, or if the functions are invalid.

    Example:
        >>> import swarmbo as sb
        >>> sb.register_kernel(
        ...     "rational-quadratic",
        ...     correlation=lambda r: 1.0 / (1.0 + 0.5 * r**2),
        ...     slope=lambda r: 1.0 / (1.0 + 0.5 * r**2) ** 2,
        ... )
        >>> belief = sb.AdditiveGP(sb.FactorGraph.from_scopes({"f": ["x"]}), kernel="rational-quadratic")
        >>> belief.update([[0.5]], [1.0]).posterior([[0.5]])[0].round(2).tolist()
        [0.99]
    """
    if not name or name in KERNEL_NAMES:
        raise ConfigError(f"got {name!r}; wanted a name other than '' and {_listed(KERNEL_NAMES)}", at="$.kernel")
    _check(name, correlation, slope, frequencies)
    _OWN[name] = OwnKernel(correlation, slope, frequencies)


def own_kernel(name: KernelName) -> OwnKernel:
    """Kernel registered under a name."""
    if name not in _OWN:
        wanted = "trust in its code: --trust (trust=True), which loads it" if is_user_code(name) else _wanted(name)
        raise ConfigError(f"got {name!r}; wanted {wanted}", at="$.kernel")
    return _OWN[name]


def named_kernels(belief: Any) -> dict[str, str]:
    """Kernels that a belief's settings name as ``"module:Class"``, by the path of the setting; nothing is loaded."""
    table = msgspec.to_builtins(belief) if isinstance(belief, msgspec.Struct) else belief
    if not isinstance(table, Mapping) or is_user_code(table.get("kind")):
        return {}
    return dict(_named(table, "$.belief"))


def unloaded_kernels(belief: Any) -> list[str]:
    """Kernels named by a belief that are not loaded in this process."""
    return [name for name in named_kernels(belief).values() if name not in _OWN]


def load_kernels(belief: Any) -> None:
    """Load and register the user's own kernels (classes) that a belief names; only for trusted code."""
    for at, name in named_kernels(belief).items():
        if name not in _OWN:
            made = make(load_class(name, at), name, {}, at)
            for method in ("correlation", "slope"):
                if not callable(getattr(made, method, None)):
                    raise ConfigError(f"got {name!r}, which has no {method}(r); wanted a kernel that has one", at=at)
            functions = {"correlation": made.correlation, "slope": made.slope}
            register_kernel(name, **functions, frequencies=getattr(made, "frequencies", None))


def _named(value: Any, at: str) -> Iterator[tuple[str, str]]:
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _named(part, f"{at}.{key}")
        elif key in ("kernel", "kernels"):
            several = isinstance(part, list | tuple)
            for i, name in enumerate(part if several else (part,)):
                if is_user_code(name):
                    yield f"{at}.{key}[{i}]" if several else f"{at}.{key}", name


def kernel_names() -> tuple[KernelName, ...]:
    """Names of all kernels: those of swarmbo, then registered kernels."""
    return (*KERNEL_NAMES, *_OWN)


def require_kernel(settings: object, field: str = "kernel", *, is_known: bool = False) -> None:
    """Refuse a field that is not the name of a kernel, or a tuple of such names; call it from ``__post_init__``.

    None is accepted, and ``"module:Class"``, which may be loaded later, unless the kernel must be known now.
    """
    value = getattr(settings, field)
    for name in value if isinstance(value, tuple) else (value,):
        if name is not None and (is_known or not is_user_code(name)) and name not in kernel_names():
            require(settings, field, lambda _: False, _wanted(name))


class KernelSettings(Settings, frozen=True):
    """Base of settings whose ``kernel`` must be the name of a kernel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kernel(self)


def _wanted(name: object) -> str:
    if near := difflib.get_close_matches(str(name), kernel_names(), n=1):
        return f"one of {_listed(KERNEL_NAMES)}; did you mean {near[0]!r}?"
    return f"one of {_listed(kernel_names())}, or a name that was registered with swarmbo.register_kernel"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _check(name: str, correlation: Radial, slope: Radial, frequencies: Frequencies | None) -> None:
    """Check functions at some distances; messages name the wrong functions."""

    def refuse(part: str, got: object, wanted: str) -> None:
        raise ConfigError(f"kernel {name!r}: got {got}; wanted {wanted}", at=f"$.{part}")

    r = np.array([[0.0, 0.05, 0.3], [0.8, 1.5, 3.0], [7.0, 40.0, 1e3]])
    for part, function in (("correlation", correlation), ("slope", slope)):
        values = function(r.copy())
        if not isinstance(values, np.ndarray) or values.shape != r.shape:  # pyright: ignore[reportUnnecessaryIsInstance]
            got = f"{type(values).__name__} of shape {np.shape(values)}"
            refuse(part, got, f"an array of the shape {r.shape} of r")
        if not np.isfinite(values).all():
            refuse(part, values.tolist(), f"finite numbers at r = {r.ravel().tolist()}")
    c, distances = correlation(r.copy()), r[(r > 0.0) & (r < 100.0)]
    if abs(c[0, 0] - 1.0) > _ALLOWED or np.abs(c).max() > 1.0 + _ALLOWED:
        refuse("correlation", c.ravel().tolist(), "c(0) = 1 and no value beyond -1 and 1")
    # central differences, as an independent check of the stated slope
    by_differences = -(correlation(distances + _STEP) - correlation(distances - _STEP)) / (2.0 * _STEP) / distances
    stated = slope(distances.copy())
    wrong = np.abs(stated - by_differences) * distances > _ALLOWED
    if wrong.any():
        at, got, wanted = (float(values[wrong][0]) for values in (distances, stated, by_differences))
        refuse("slope", f"{got:.6g} at r = {at:g}", f"-c'(r) / r = {wanted:.6g}")
    smallest = _smallest_eigenvalue(correlation, np.linspace(0.0, 12.0, 60)[:, None])
    if smallest < -_ALLOWED:
        refuse("correlation", f"a covariance matrix with the eigenvalue {smallest:.3g}", "a positive definite function")
    if frequencies is None:
        return
    square, r = np.indices((8, 8)).reshape(2, -1).T * 0.75, np.array([0.1, 0.3, 0.7, 1.5, 3.0])
    d = 2 if _smallest_eigenvalue(correlation, square) >= -_ALLOWED else 1  # 1: a kernel in one dimension only
    v = np.asarray(frequencies(np.random.default_rng(0), _DRAWS, d), dtype=float)
    if v.shape != (_DRAWS, d) or not np.isfinite(v).all():
        refuse("frequencies", f"an array of shape {v.shape}", f"finite numbers of shape {(_DRAWS, d)}")
    # along the diagonal, where frequencies drawn independently for each axis would give another correlation
    found, wanted = np.cos(r * (v.sum(axis=1) / np.sqrt(d))[:, None]).mean(axis=0), correlation(r.copy())
    if (wrong := np.abs(found - wanted) > _ALLOWED_OF_DRAWS).any():
        at, got, c = (float(values[wrong][0]) for values in (r, found, wanted))
        refuse("frequencies", f"E cos(v·x) of about {got:.3g} at r = {at:g}", f"c(r) = {c:.3g}")


def _smallest_eigenvalue(correlation: Radial, X: Float[np.ndarray, "n d"]) -> float:
    return float(np.linalg.eigvalsh(correlation(np.linalg.norm(X[:, None] - X, axis=2)))[0])

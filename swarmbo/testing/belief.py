"""Contract of a belief."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from swarmbo.testing.claims import claim, claim_close, claim_equal, claim_offers, refuse

_N_DATA, _N_PLACES = 7, 9


def check_belief(make: Callable[[], Any], restore: Callable[[Any], Any] | None = None) -> None:
    """Check the contract of a belief.

    A belief has ``domain``, ``n_data``, ``update(X, y)`` and ``posterior(X)``. It is immutable: learning makes a new
    belief. Variances are finite, at least 0, and do not grow with data. Results do not depend on the order of data, or
    on whether data come at once or one by one. Means move towards observations. ``posterior_mean(X)`` and
    ``posterior_cache(X)``, which are optional, agree with ``posterior(X)``. ``condition_on_pending(X)``, which is
    optional, too, changes no mean and raises no variance. With ``restore``, a belief restored from ``state_dict()`` is
    bit-identical. Other claims hold up to rounding. The check fits no hyper-parameters.

    Args:
        make: Function that makes a new belief without data.
        restore: Function that makes a belief from a ``state_dict()``, whose plain part was converted to JSON and back.

    Raises:
        AssertionError: If a claim is violated. The message has its subject, the value got and the value wanted.

    Example:
        >>> import swarmbo as sb
        >>> square = sb.Domain([0.0, 0.0], [1.0, 1.0])
        >>> settings = sb.ExactGPSettings()
        >>> make = lambda: sb.ExactGP.create(settings, square)
        >>> sb.testing.check_belief(make, lambda state: sb.ExactGP.from_state_dict(settings, square, state))
    """
    claim(callable(make), "make", f"an object, {type(make).__name__}", "a function that makes a new belief")
    empty = make()
    claim_offers(empty, "domain", "n_data", "update", "posterior")
    rng = np.random.default_rng(0)
    points = empty.domain.from_unit(rng.random((_N_DATA + _N_PLACES, empty.domain.n_dims)))
    X, places, y = points[:_N_DATA], points[_N_DATA:], rng.normal(size=_N_DATA)
    prior = _marginals(empty, places)
    belief = empty.update(X, y)
    learned = _marginals(belief, places)
    claim(empty.n_data == 0, "n_data of the belief without data, after update() made another", empty.n_data, 0)
    claim_equal(_marginals(empty, places), prior, "posterior() after update() made another belief", "the one before")
    claim(belief.n_data == _N_DATA, f"n_data after {_N_DATA} outcomes", belief.n_data, _N_DATA)
    _claim_no_larger(learned[1], prior[1], "data")
    repeated = _marginals(make().update(X, y), places)
    claim_equal(repeated, learned, "posterior() of another belief from the same data", "the same")
    single = np.array([_marginals(belief, place[None]) for place in places])[:, :, 0].T
    claim_close(single, learned, "posterior() at a single place", "that of the place among others")
    _check_order(empty, learned, X, y, places)
    _check_learning(belief, places[:1])
    _check_refusals(belief, X, y)
    if hasattr(belief, "posterior_mean"):
        claim_close(belief.posterior_mean(places), learned[0], "posterior_mean()", "the means of posterior()")
    if hasattr(belief, "posterior_cache"):
        cache, every = belief.posterior_cache(places), np.arange(_N_PLACES)
        cached = cache.mean, cache.var, np.diagonal(cache.cov(every, every))
        claim_close(cached, learned[[0, 1, 1]], "mean, var, and cov of posterior_cache()", "those of posterior()")
    if hasattr(belief, "condition_on_pending"):
        _check_pending(belief, places)
    if restore is not None:
        _check_state(belief, restore, places)


def _marginals(belief: Any, X: np.ndarray) -> np.ndarray:
    marginals = belief.posterior(X)
    is_pair = isinstance(marginals, tuple) and [type(part) for part in marginals] == [np.ndarray] * 2
    claim(is_pair, "posterior()", marginals, "a pair of mean and variance, two arrays")
    mean, var = (np.asarray(part, dtype=float) for part in marginals)
    wanted = (len(X),)
    claim(mean.shape == var.shape == wanted, "shapes of posterior()", (mean.shape, var.shape), f"{wanted} of both")
    are_finite = np.isfinite(mean).all() and np.isfinite(var).all()
    claim(are_finite, "posterior()", (mean, var), "finite numbers")
    claim((var >= 0.0).all(), "a variance", float(var.min()), "at least 0")
    return np.array([mean, var])


def _claim_no_larger(after: np.ndarray, before: np.ndarray, why: str) -> None:
    slack = 1e-6 * before.max(initial=0.0)
    worst = float((after - before).max())
    claim(worst <= slack, f"a variance after {why}", f"{worst:.3g} more than before", "no more")


def _check_order(empty: Any, learned: np.ndarray, X: np.ndarray, y: np.ndarray, places: np.ndarray) -> None:
    one_by_one = empty
    for row in range(len(X)):
        before = _marginals(one_by_one, places)
        one_by_one = one_by_one.update(X[row : row + 1], y[row : row + 1])
        _claim_no_larger(_marginals(one_by_one, places)[1], before[1], f"outcome {row + 1}")
    claim_close(_marginals(one_by_one, places), learned, "posterior() after data one by one", "that after all at once")
    backwards = _marginals(empty.update(X[::-1], y[::-1]), places)
    claim_close(backwards, learned, "posterior() after data in another order", "the same")


def _check_learning(belief: Any, place: np.ndarray) -> None:
    (mean,), (var,) = _marginals(belief, place)
    outcome = mean + 3.0 * np.sqrt(var) + 1e-3
    (after,), (smaller,) = _marginals(belief.update(place, np.array([outcome])), place)
    nearer = abs(after - outcome) < abs(mean - outcome)
    claim(nearer, f"the mean where {outcome:.6g} was observed", f"{after:.6g}", f"one nearer to that than {mean:.6g}")
    claim(smaller < var, "the variance at a place after an outcome there", f"{smaller:.6g}", f"less than {var:.6g}")


def _check_refusals(belief: Any, X: np.ndarray, y: np.ndarray) -> None:
    wrong = {
        "points with a column too many": (np.column_stack([X, X[:, :1]]), y),
        "fewer outcomes than points": (X, y[:-1]),
        "an infinite outcome": (X, np.where(np.arange(len(y)) == 0, np.inf, y)),
    }
    for what, (points, outcomes) in wrong.items():
        try:
            belief.update(points, outcomes)
        except ValueError:
            continue
        refuse(f"update() with {what}", "a belief", "ShapeError, or another ValueError")


def _check_pending(belief: Any, places: np.ndarray) -> None:
    before = _marginals(belief, places)
    pending = belief.condition_on_pending(places[:2])
    unmoved = "posterior() after condition_on_pending() made another belief"
    claim_equal(_marginals(belief, places), before, unmoved, "the one before")
    mean, var = _marginals(pending, places)
    claim_close(mean, before[0], "means given pending points", "those without")
    _claim_no_larger(var, before[1], "points are pending")
    claim((var[:2] < before[1][:2]).all(), "variances where points are pending", var[:2], f"less than {before[1][:2]}")
    claim(pending.n_data == belief.n_data, "n_data given pending points", pending.n_data, belief.n_data)


def _check_state(belief: Any, restore: Callable[[Any], Any], places: np.ndarray) -> None:
    claim_offers(belief, "state_dict")
    state = belief.state_dict()
    claim(set(state) == {"json", "arrays"}, "state_dict()", sorted(state), "'json' and 'arrays'")
    arrays = {name: np.array(array) for name, array in state["arrays"].items()}
    restored = restore({"json": json.loads(json.dumps(state["json"])), "arrays": arrays})
    same = _marginals(belief, places)
    claim_equal(_marginals(restored, places), same, "posterior() of a restored belief", "the same")
    continued, expected = (_marginals(each.update(places[:1], np.array([0.5])), places) for each in (restored, belief))
    claim_equal(continued, expected, "posterior() of a restored belief after another outcome", "that of the saved one")

"""What a belief keeps to."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from swarmbo.testing.claims import are_close, are_equal, claim, claim_offers

_N_DATA, _N_PLACES = 7, 9


def check_belief(make: Callable[[], Any], restore: Callable[[Any], Any] | None = None) -> None:
    """Hold a belief to its contract.

    It has ``domain``, ``n_data``, ``update(X, y)`` and ``posterior(X)``, and never changes: learning makes another.
    Variances are finite, at least 0, and do not grow with data. Data may come at once or one by one, in any order. A
    mean goes towards what was observed. If it has ``condition_on_pending(X)``, that moves no mean and raises no
    variance; with ``restore``, what ``state_dict()`` says comes back to the bit. All of that up to rounding, and
    without a fit of hyper-parameters in between.

    Args:
        make: Makes it anew, without data.
        restore: Makes one from what ``state_dict()`` returned, after its plain part went through JSON.

    Raises:
        AssertionError: With the claim that does not hold.

    Example:
        >>> import swarmbo as sb
        >>> square = sb.Domain([0.0, 0.0], [1.0, 1.0])
        >>> settings = sb.ExactGPSettings()
        >>> make = lambda: sb.ExactGP.create(settings, square)
        >>> sb.testing.check_belief(make, lambda state: sb.ExactGP.from_state_dict(settings, square, state))
    """
    empty = make()
    claim_offers(empty, "domain", "n_data", "update", "posterior")
    rng = np.random.default_rng(0)
    sides = rng.random((_N_DATA + _N_PLACES, empty.domain.n_dims))
    points = empty.domain.from_unit(sides)
    X, places, y = points[:_N_DATA], points[_N_DATA:], rng.normal(size=_N_DATA)
    prior = _moments(empty, places)
    belief = empty.update(X, y)
    learned = _moments(belief, places)
    claim(
        empty.n_data == 0 and are_equal(_moments(empty, places), prior), "update() changed the belief it was asked of"
    )
    claim(belief.n_data == _N_DATA, f"n_data is {belief.n_data} after {_N_DATA} outcomes")
    _claim_no_larger(learned[1], prior[1], "data")
    claim(are_equal(_moments(make().update(X, y), places), learned), "the same data give another posterior")
    alone = np.array([_moments(belief, place[None]) for place in places])[:, :, 0].T
    claim(are_close(alone, learned), "the posterior at a place depends on which others it is asked with")
    one_by_one = empty
    for row in range(_N_DATA):
        before = _moments(one_by_one, places)
        one_by_one = one_by_one.update(X[row : row + 1], y[row : row + 1])
        _claim_no_larger(_moments(one_by_one, places)[1], before[1], f"outcome {row + 1}")
    claim(are_close(_moments(one_by_one, places), learned), "data one by one give another posterior than all at once")
    backwards = empty.update(X[::-1], y[::-1])
    claim(are_close(_moments(backwards, places), learned), "the posterior depends on the order of the data")
    _check_learning(belief, places[:1])
    _check_refusals(belief, X, y)
    if hasattr(belief, "condition_on_pending"):
        _check_pending(belief, places)
    if restore is not None:
        _check_state(belief, restore, places)


def _moments(belief: Any, X: np.ndarray) -> np.ndarray:
    """Means and variances (2, m) at places, checked."""
    moments = belief.posterior(X)
    claim(isinstance(moments, tuple) and len(moments) == 2, "posterior() returns no pair of mean and variance")
    mean, var = (np.asarray(part, dtype=float) for part in moments)
    wanted = (len(X),)
    claim(mean.shape == var.shape == wanted, f"posterior() has shapes {mean.shape} and {var.shape}; wanted {wanted}")
    claim(np.isfinite(mean).all() and np.isfinite(var).all(), "posterior() is not finite")
    claim((var >= 0.0).all(), f"a variance is negative: {var.min()}")
    return np.array([mean, var])


def _claim_no_larger(after: np.ndarray, before: np.ndarray, why: str) -> None:
    slack = 1e-6 * before.max(initial=0.0)
    worst = float((after - before).max())
    claim(worst <= slack, f"{why} made a variance larger, by {worst}")


def _check_learning(belief: Any, place: np.ndarray) -> None:
    (mean,), (var,) = _moments(belief, place)
    outcome = mean + 3.0 * np.sqrt(var) + 1e-3
    (after,), (smaller,) = _moments(belief.update(place, np.array([outcome])), place)
    claim(abs(after - outcome) < abs(mean - outcome), "an outcome did not draw the mean at its place towards it")
    claim(smaller < var, "an outcome did not lower the variance at its place")


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
        raise AssertionError(f"{what} were learned without a word; wanted ShapeError, or another ValueError")


def _check_pending(belief: Any, places: np.ndarray) -> None:
    before = _moments(belief, places)
    pending = belief.condition_on_pending(places[:2])
    claim(are_equal(_moments(belief, places), before), "condition_on_pending() changed the belief it was asked of")
    mean, var = _moments(pending, places)
    claim(are_close(mean, before[0]), "points that are out moved the mean")
    _claim_no_larger(var, before[1], "points that are out")
    claim((var[:2] < before[1][:2]).all(), "points that are out did not lower the variance at their places")
    claim(pending.n_data == belief.n_data, "points that are out count as data")


def _check_state(belief: Any, restore: Callable[[Any], Any], places: np.ndarray) -> None:
    claim_offers(belief, "state_dict")
    state = belief.state_dict()
    claim(set(state) == {"json", "arrays"}, f"state_dict() has {sorted(state)}; wanted 'json' and 'arrays'")
    arrays = {name: np.array(array) for name, array in state["arrays"].items()}
    restored = restore({"json": json.loads(json.dumps(state["json"])), "arrays": arrays})
    same = are_equal(_moments(restored, places), _moments(belief, places))
    claim(same, "a restored belief has another posterior")
    more = np.array([0.5])
    both = [_moments(one.update(places[:1], more), places) for one in (restored, belief)]
    claim(are_equal(*both), "a restored belief does not go on as the one that was saved")

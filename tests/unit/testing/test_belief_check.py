"""A correct user's belief passes the check. For each possible fault, the check refuses it with a message."""

from types import SimpleNamespace

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ShapeError

DOMAIN = sb.Domain([-1.0, 0.0], [1.0, 4.0])


class Plane:
    """Bayesian linear regression on constant, x and y: prior N(0, I), noise variance 0.1."""

    domain = DOMAIN

    def __init__(self, X=None, y=None, pending=None):
        self.X, self.y = (np.empty((0, 2)), np.empty(0)) if X is None or y is None else (X, y)
        self.pending = np.empty((0, 2)) if pending is None else pending

    @property
    def n_data(self):
        return len(self.X)

    def update(self, X, y):
        if X.shape[1:] != (2,) or len(X) != len(y) or not np.isfinite(y).all():
            raise ShapeError("no data")
        return type(self)(np.vstack([self.X, X]), np.concatenate([self.y, y]))

    def condition_on_pending(self, X):
        return type(self)(self.X, self.y, X)

    def posterior(self, X):
        F, G = (np.column_stack([np.ones(len(one)), one]) for one in (self.X, X))
        H = np.vstack([F, np.column_stack([np.ones(len(self.pending)), self.pending])])
        mean = G @ np.linalg.solve(np.eye(3) + F.T @ F / 0.1, F.T @ self.y / 0.1)
        precision = np.eye(3) + H.T @ H / 0.1
        return mean, np.array([g @ np.linalg.solve(precision, g) for g in G])

    def state_dict(self):
        return {"json": {"n": len(self.y)}, "arrays": {"X": self.X, "y": self.y}}

    @classmethod
    def restored(cls, state):
        return cls(state["arrays"]["X"], state["arrays"]["y"])


def altered(change):
    """The correct posterior with a change."""
    return {"posterior": lambda self, X: change(self, X, *Plane.posterior(self, X))}


def cached(change, **more):
    """A cache of the correct posterior with a change."""

    def posterior_cache(self, X):
        mean, var = change(*Plane.posterior(self, X))
        return SimpleNamespace(mean=mean, var=var, **{"cov": lambda rows, columns: np.diag(var), **more})

    return {"posterior_cache": posterior_cache}


def variance_grows_with_data(self, X, mean, var):
    return mean, var + 10.0 * len(self.X)


def depends_on_order(self, X, mean, var):
    return (mean + 0.1 * self.y[0] if len(self.y) else mean), var


def learned_in_place(self, X, y):
    learned = Plane.update(self, X, y)
    self.__dict__ |= learned.__dict__
    return self


def changes_itself(self, X):
    pending = Plane.condition_on_pending(self, X)
    self.pending = X
    return pending


def drawn(self, X, y):
    return type(self)(np.vstack([self.X, X]), np.concatenate([self.y, y + np.random.default_rng().normal()]))


def accepts_anything(self, X, y):
    keep = min(len(X), len(y))
    return type(self)(np.vstack([self.X, X[:keep, :2]]), np.concatenate([self.y, np.nan_to_num(y[:keep], posinf=0.0)]))


def counted_as_data(self, X):
    return type(self)(np.vstack([self.X, X]), np.concatenate([self.y, self.posterior(X)[0]]))


BROKEN = {
    "no domain": ({"domain": property()}, "Broken: got no domain; wanted an object with domain, n_data, update, post"),
    "not a pair": (altered(lambda self, X, mean, var: mean), r"posterior\(\): got array.*; wanted a pair of mean and"),
    "lists": (
        altered(lambda self, X, mean, var: (mean.tolist(), var.tolist())),
        r"posterior\(\): got .*; wanted a pair of mean and variance, two arrays",
    ),
    "another mean": (
        {"posterior_mean": lambda self, X: self.posterior(X)[0] + 1.0},
        r"posterior_mean\(\): got a difference of 1; wanted the means of posterior\(\)",
    ),
    "another variance": (
        cached(lambda mean, var: (mean, 2.0 * var)),
        r"mean, var, and cov of posterior_cache\(\): got a difference of .*; wanted those of posterior\(\)",
    ),
    "another covariance": (
        cached(lambda mean, var: (mean, var), cov=lambda rows, columns: np.zeros((len(rows), len(columns)))),
        r"mean, var, and cov of posterior_cache\(\): got a difference of .*; wanted those of posterior\(\)",
    ),
    "a matrix": (
        altered(lambda self, X, mean, var: (mean, np.diag(var))),
        r"shapes of posterior\(\): got \(\(9,\), \(9, 9\)\); wanted \(9,\) of both",
    ),
    "NaN": (altered(lambda self, X, mean, var: (mean * np.nan, var)), r"posterior\(\): got .*; wanted finite numbers"),
    "negative": (altered(lambda self, X, mean, var: (mean, var - 1.0)), "a variance: got -.*; wanted at least 0"),
    "learns in place": (
        {"update": learned_in_place},
        r"n_data of the belief without data, after update\(\) made another: got 7; wanted 0",
    ),
    "loses data": ({"n_data": property(lambda self: 0)}, "n_data after 7 outcomes: got 0; wanted 7"),
    "variance grows with data": (
        altered(variance_grows_with_data),
        "a variance after data: got .* more than before; wanted no more",
    ),
    "random": ({"update": drawn}, r"posterior\(\) of another belief from the same data: got .*; wanted the same"),
    "depends on the number of places": (
        altered(lambda self, X, mean, var: (mean + len(X), var)),
        r"posterior\(\) at a single place: got a difference of 8; wanted that of the place among others",
    ),
    "depends on the order of data": (
        altered(depends_on_order),
        r"posterior\(\) after data in another order: got a difference of .*; wanted the same",
    ),
    "one by one differs from all at once": (
        {"update": lambda self, X, y: type(self)(X, y) if len(X) > 1 else Plane.update(self, X, 0.0 * y)},
        r"posterior\(\) after data one by one: got a difference of .*; wanted that after all at once",
    ),
    "learns nothing": (
        altered(lambda self, X, mean, var: (0.0 * mean, var)),
        "the mean where .* was observed: got .*; wanted one nearer to that than",
    ),
    "variance does not shrink": (
        altered(lambda self, X, mean, var: (mean, np.ones(len(X)))),
        "the variance at a place after an outcome there: got 1; wanted less than 1",
    ),
    "accepts anything": (
        {"update": accepts_anything},
        r"update\(\) with points with a column too many: got a belief; wanted Sh",
    ),
    "pending points change the belief itself": (
        {"condition_on_pending": changes_itself},
        r"posterior\(\) after condition_on_pending\(\) made another belief: got .*; wanted the one before",
    ),
    "pending points change the mean": (
        {"condition_on_pending": lambda self, X: self.update(X, np.ones(len(X)))},
        "means given pending points: got a difference of .*; wanted those without",
    ),
    "pending points have no effect": (
        {"condition_on_pending": lambda self, X: self},
        "variances where points are pending: got .*; wanted less than",
    ),
    "pending points count as data": (
        {"condition_on_pending": counted_as_data},
        "n_data given pending points: got 9; wanted 7",
    ),
    "an invalid state": ({"state_dict": lambda self: {"X": self.X}}, r"state_dict\(\): got \['X'\]; wanted 'json' and"),
    "a state that loses data": (
        {"restored": lambda state: Plane(state["arrays"]["X"], 0.0 * state["arrays"]["y"])},
        r"posterior\(\) of a restored belief: got .*; wanted the same",
    ),
}


def test_a_correct_belief_passes():
    sb.testing.check_belief(Plane, Plane.restored)
    sb.testing.check_belief(type("Cached", (Plane,), cached(lambda mean, var: (mean, var))))


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN)
def test_a_faulty_belief_is_refused_with_what_was_got_and_what_is_wanted(changes, words):
    broken = type("Broken", (Plane,), changes)
    with pytest.raises(AssertionError, match=words):
        sb.testing.check_belief(broken, broken.restored)

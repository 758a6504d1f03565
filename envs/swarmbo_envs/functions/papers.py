"""Simulated functions of the papers: the path of a rover among obstacles, and the tuning of a small network."""

import warnings
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.interpolate import splev, splprep

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, needed
from swarmbo_envs.functions.additive_function import AdditiveFunction, Points, Values

_START, _GOAL = np.array([0.05, 0.05]), np.array([0.95, 0.95])
_SAMPLES = 1000
_DATA = {"breast-cancer": "load_breast_cancer", "digits": "load_digits", "iris": "load_iris", "wine": "load_wine"}
_EPOCHS = 20


def rover(
    n_variables: int = 60, obstacles: int = 113, half_m: float = 0.025, through: bool = False, seed: int = 0
) -> AdditiveFunction:
    """Negative cost of a rover's path on [0, 1]²: one factor, maximum unknown, below 0.

    The variables are coordinates of points, x and y in turn, scaled to [-0.1, 1.1]. A cubic spline of them is the path.
    The cost per length is 0.05, and 20 more in any obstacle or outside; missing the start (0.05, 0.05) or the goal
    (0.95, 0.95) costs ten times the distance in x and y.

    Source: Wang et al. 2018 (ensemble Bayesian optimisation), with obstacles drawn here; Bardou et al. 2024, table 2.

    Args:
        n_variables: Twice the number of points, which is at least 4.
        obstacles: Squares at places drawn from a seed, none of them on the start or the goal.
        half_m: Half the side of a square.
        through: True: the path passes through all points. False: a smoothing spline with SciPy's default, as in the
            authors' program. With 30 points it is a single cubic, so about eight numbers decide.
        seed: Seed of the obstacles.

    Raises:
        ConfigError: If the number of variables is odd or less than 8.
    """
    if n_variables < 8 or n_variables % 2:
        raise ConfigError(f"got {n_variables}; wanted an even number >= 8", at="$.environment.n_variables")
    drawn = stream(seed, "rover obstacles").random((4 * obstacles + 64, 2))
    ends = np.stack([_START, _GOAL])
    free = (np.abs(drawn[:, None] - ends).max(axis=2) > 2.0 * half_m).all(axis=1)
    term = partial(path_value, centres=drawn[free][:obstacles], half=half_m, through=through)
    low, high = np.zeros(n_variables), np.ones(n_variables)
    return AdditiveFunction(f"rover-{n_variables}", low, high, {"f": tuple(range(n_variables))}, {"f": term})


def path_value(X: Points, centres: Float[np.ndarray, "o 2"], half: float, through: bool) -> Values:
    """Negative costs of paths through points (m, 2k), squares at ``centres`` in the way; see ``rover``."""
    return np.array([-_cost(1.2 * x.reshape(-1, 2) - 0.1, centres, half, through) for x in X])


def _cost(points: Float[np.ndarray, "k 2"], centres: Float[np.ndarray, "o 2"], half: float, through: bool) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of splines that keep fewer knots than asked for, as all of them do
        spline: Any = splprep(points.T, k=3, s=0.0 if through else None)[0]
    path = np.column_stack(splev(np.linspace(0.0, 1.0, _SAMPLES), spline))
    hit = (np.abs(path[:, None] - centres).max(axis=2) <= half).any(axis=1)
    outside = ((path < 0.0) | (path >= 1.0)).any(axis=1)
    cost = 0.05 + 20.0 * (hit | outside)
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=1)
    missed = np.abs(path[0] - _START).sum() + np.abs(path[-1] - _GOAL).sum()
    return float((0.5 * (cost[1:] + cost[:-1]) * lengths).sum() + 10.0 * missed)


def network(data: str = "wine", trainings: int = 3, seed: int = 0) -> AdditiveFunction:
    """Validation accuracy of a network of two layers, by its neurons, learning rate and batch: one factor, at most 1.

    Ranges: 2 to 100 neurons per layer, learning rate 1e-6 to 0.1 by its logarithm, batch 4 to 64; integers are rounded.
    70 % of the data train for 20 epochs of Adam, and the value is the mean over ``trainings``.

    Source: Lu et al. 2022 (EGP-TS), section 5, on data that scikit-learn brings along.

    Args:
        data: ``breast-cancer``, ``digits``, ``iris`` or ``wine``.
        trainings: Trainings of an evaluation, >= 1, from different first weights.
        seed: Seed of the split and of the trainings.

    Raises:
        ConfigError: If there is no such data, or no training.
        MissingPackageError: Without scikit-learn.
    """
    if data not in _DATA or trainings < 1:
        got = f"got {data!r}, {trainings} trainings"
        raise ConfigError(f"{got}; wanted one of {', '.join(_DATA)}, and >= 1", at="$.data")
    needed("sklearn", "network", "'network'")
    variables = ("neurons_1", "neurons_2", "log10_rate", "batch")
    low, high = np.array([2.0, 2.0, -6.0, 4.0]), np.array([100.0, 100.0, -1.0, 64.0])
    term = partial(_accuracy, data=data, trainings=trainings, seed=seed)
    scope = {"f": (0, 1, 2, 3)}
    return AdditiveFunction(f"network on {data}", low, high, scope, {"f": term}, variables=variables)


def _accuracy(X: Points, data: str, trainings: int, seed: int) -> Values:
    sets: Any = needed("sklearn.datasets", "network", "'network'")
    networks: Any = needed("sklearn.neural_network", "network", "'network'")
    inputs, labels = getattr(sets, _DATA[data])(return_X_y=True)
    order = stream(seed, "network split").permutation(len(labels))
    train, rest = np.split(order, [int(0.7 * len(order))])
    std = inputs[train].std(axis=0)
    inputs = (inputs - inputs[train].mean(axis=0)) / np.where(std > 0.0, std, 1.0)
    found: list[float] = []
    for first, second, log_rate, batch in X:
        of_point: list[float] = []
        for number in range(trainings):
            model = networks.MLPClassifier(
                (round(first), round(second)),
                learning_rate_init=10.0**log_rate,
                batch_size=round(batch),
                max_iter=_EPOCHS,
                n_iter_no_change=_EPOCHS,
                random_state=int(stream(seed, "network training", number=number).integers(2**31)),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of trainings that have not converged after 20 epochs
                of_point.append(float(model.fit(inputs[train], labels[train]).score(inputs[rest], labels[rest])))
        found.append(sum(of_point) / trainings)
    return np.array(found)

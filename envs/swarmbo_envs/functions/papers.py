"""Simulated functions of the papers: a rover among obstacles, a small network that is tuned, pushing robots."""

import math
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
_SAMPLES = 1000  # points of a path
_DATA = {"breast-cancer": "load_breast_cancer", "digits": "load_digits", "iris": "load_iris", "wine": "load_wine"}
_EPOCHS = 20
_STEP, _ITERATIONS, _FREE = 0.01, 10, 100  # time step in s, iterations of the solver, steps after the last push
_GAIN = 30.0  # force or torque per mass and error of velocity
_FULL_TURN = 2.0 * math.pi
_LOW = {3: (-5.0, -5.0, 1.0), 4: (-5.0, -5.0, 1.0, 0.0), 14: (-5.0, -5.0, -10.0, -10.0, 2.0, 0.0, -5.0) * 2}
_HIGH = {3: (5.0, 5.0, 30.0), 4: (5.0, 5.0, 30.0, _FULL_TURN), 14: (5.0, 5.0, 10.0, 10.0, 30.0, _FULL_TURN, 5.0) * 2}
_NAMES = ("x", "y", "vx", "vy", "duration", "angle", "spin")
_VARIABLES = {3: ("x", "y", "duration"), 4: ("x", "y", "duration", "angle")}
_STARTS, _GOALS = np.array([[0.0, 2.0], [0.0, -2.0]]), np.array([[4.0, 3.5], [-4.0, 3.5]])


def rover(
    n_variables: int = 60, obstacles: int = 113, half_m: float = 0.025, through: bool = False, seed: int = 0
) -> AdditiveFunction:
    """Negative cost of a rover's path on [0, 1]²: one factor, maximum unknown, below 0.

    The variables are coordinates of points, x, y, x, …, scaled to [-0.1, 1.1]; the path is their cubic spline. The
    cost per length is 0.05, and 20 more in any obstacle or outside; missing the start (0.05, 0.05) or the goal (0.95,
    0.95) costs ten times the distance in x and y.

    Source: Wang et al. 2018 (ensemble Bayesian optimisation), with obstacles drawn here; Bardou et al. 2024, table 2.

    Args:
        n_variables: Twice the number of points, which is at least 4.
        obstacles: Squares at places drawn from a seed, none of them on the start or the goal.
        half_m: Half the side of a square.
        through: True: the path passes through all points. False: a smoothing spline with SciPy's default, as in the
            authors' program. With 30 points it is a single cubic, so about eight numbers decide.
        seed: Seed of the obstacles.

    Raises:
        ConfigError: If the number of variables is odd or less than 8, or not all squares can be drawn.
    """
    if n_variables < 8 or n_variables % 2:
        raise ConfigError(f"got {n_variables}; wanted an even number >= 8", at="$.environment.n_variables")
    if obstacles < 0:
        raise ConfigError(f"got {obstacles}; wanted an integer >= 0", at="$.environment.obstacles")
    drawn = stream(seed, "rover obstacles").random((4 * obstacles + 64, 2))
    free = (np.abs(drawn[:, None] - np.stack([_START, _GOAL])).max(axis=2) > 2.0 * half_m).all(axis=1)
    if obstacles > free.sum() or not half_m > 0.0:
        wanted = "a number > 0, small enough to leave start and goal free"
        raise ConfigError(f"got {obstacles} squares of half side {half_m}; wanted {wanted}", at="$.environment.half_m")
    term = partial(path_value, centres=drawn[free][:obstacles], half=half_m, through=through)
    low, high = np.zeros(n_variables), np.ones(n_variables)
    return AdditiveFunction(f"rover-{n_variables}", low, high, {"f": tuple(range(n_variables))}, {"f": term})


def path_value(X: Points, centres: Float[np.ndarray, "o 2"], half: float, through: bool) -> Values:
    """Negative costs of paths through points (m, 2k), squares at ``centres`` in the way; see ``rover``."""
    return np.array([-_cost(1.2 * x.reshape(-1, 2) - 0.1, centres, half, through) for x in X])


def _cost(points: Float[np.ndarray, "k 2"], centres: Float[np.ndarray, "o 2"], half: float, through: bool) -> float:
    moves = (np.diff(points, axis=0) != 0.0).any(axis=1)
    points = points[np.append(True, moves)]  # a spline needs neighbours that differ
    path = np.repeat(points[:1], _SAMPLES, axis=0)
    if len(points) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings that a spline misses its smoothing factor
            spline: Any = splprep(points.T, k=min(3, len(points) - 1), s=0.0 if through else None)[0]
        path = np.column_stack(splev(np.linspace(0.0, 1.0, _SAMPLES), spline))
    hit = (np.abs(path[:, None] - centres).max(axis=2) <= half).any(axis=1)
    outside = ((path < 0.0) | (path >= 1.0)).any(axis=1)
    cost = 0.05 + 20.0 * (hit | outside)
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=1)
    missed = np.abs(path[0] - _START).sum() + np.abs(path[-1] - _GOAL).sum()
    return float((0.5 * (cost[1:] + cost[:-1]) * lengths).sum() + 10.0 * missed)


def network(data: str = "wine", trainings: int = 3, seed: int = 0) -> AdditiveFunction:
    """Validation accuracy of a two-layer network over neurons, learning rate and batch size: one factor, at most 1.

    Ranges: 2 to 100 neurons per layer, learning rate 1e-6 to 0.1 by its logarithm, batch 4 to 64; integers are rounded.
    The network is trained on 70 % of the data for 20 epochs of Adam; the value is the mean over ``trainings``.

    Source: Lu et al. 2022 (EGP-TS), section 5, on data that scikit-learn brings along.

    Args:
        data: ``breast-cancer``, ``digits``, ``iris`` or ``wine``.
        trainings: Trainings per evaluation, >= 1, from different initial weights.
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
    return AdditiveFunction(f"network on {data}", low, high, {"f": (0, 1, 2, 3)}, {"f": term}, variables=variables)


def _accuracy(X: Points, data: str, trainings: int, seed: int) -> Values:
    datasets: Any = needed("sklearn.datasets", "network", "'network'")
    neural: Any = needed("sklearn.neural_network", "network", "'network'")
    inputs, labels = getattr(datasets, _DATA[data])(return_X_y=True)
    order = stream(seed, "network split").permutation(len(labels))
    train, rest = np.split(order, [int(0.7 * len(order))])
    std = inputs[train].std(axis=0)
    inputs = (inputs - inputs[train].mean(axis=0)) / np.where(std > 0.0, std, 1.0)
    means: list[float] = []
    for first, second, log_rate, batch in X:
        scores: list[float] = []
        for number in range(trainings):
            epochs = {"max_iter": _EPOCHS, "n_iter_no_change": _EPOCHS, "batch_size": round(batch)}
            state = int(stream(seed, "network training", number=number).integers(2**31))
            options = {"learning_rate_init": 10.0**log_rate, "random_state": state, **epochs}
            model = neural.MLPClassifier((round(first), round(second)), **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings that training has not converged after 20 epochs
                scores.append(float(model.fit(inputs[train], labels[train]).score(inputs[rest], labels[rest])))
        means.append(sum(scores) / trainings)
    return np.array(means)


def push(n_variables: int = 3, seed: int = 0) -> AdditiveFunction:
    """Negative distance of pushed objects to their goals, simulated by Box2D; one factor, maximum unknown.

    3 variables: position (x, y) of a hand, and the duration (0.1 s) of a push towards the object at the origin, with 5
    m/s. 4: also the angle of the hand; with 10 m/s. The value is 5 minus the distance to a goal that is drawn from a
    seed, so 5 is a bound. 14: x, y, vx, vy, duration, angle and spin of each of two robots; the value is the sum of how
    much two objects, the first of them square, approach fixed goals.

    Source: Wang & Jegelka 2017 (max-value entropy search), 3 and 4 variables; Wang et al. 2018 (ensemble Bayesian
    optimisation), 14, whose program orders the variables differently. The noise of the hand's velocity is left out.

    Args:
        n_variables: 3, 4 or 14.
        seed: Seed of the goal, for 3 and 4.

    Raises:
        ConfigError: With another number of variables.
        MissingPackageError: Without Box2D.
    """
    if n_variables not in _LOW:
        raise ConfigError(f"got {n_variables}; wanted 3, 4 or 14", at="$.environment.n_variables")
    _box2d()
    is_one_robot = n_variables < 14
    goals = stream(seed, "push goal").uniform(-5.0, 5.0, (1, 2)) if is_one_robot else _GOALS
    low, high, scope = np.array(_LOW[n_variables]), np.array(_HIGH[n_variables]), tuple(range(n_variables))
    term = partial(_pushed, goals=goals, starts=np.zeros((1, 2)) if is_one_robot else _STARTS)
    names = _VARIABLES.get(n_variables, tuple(f"{name}_{robot}" for robot in (1, 2) for name in _NAMES))
    return AdditiveFunction(f"push-{n_variables}", low, high, {"f": scope}, {"f": term}, variables=names)


def _box2d() -> Any:
    """Import the package quietly: an import that warns kills the process where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return needed("Box2D", "box2d", "'push'")


def _pushed(X: Points, goals: Float[np.ndarray, "r 2"], starts: Float[np.ndarray, "r 2"]) -> Values:
    bound = 5.0 if len(goals) == 1 else float(np.linalg.norm(goals - starts, axis=1).sum())
    ends = np.array([moved_objects(_commands(x), starts) for x in X])
    return bound - np.linalg.norm(ends - goals, axis=2).sum(axis=1)


def _commands(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "r 7"]:
    if len(x) == 14:
        return x.reshape(2, 7)
    speed, angle = (5.0, math.atan2(x[1], x[0])) if len(x) == 3 else (10.0, x[3])
    if len(x) == 3 and x[0] < 0.0:  # the authors' atan(y / x), which is half a turn away
        angle += math.pi
    towards = -x[:2] / max(float(np.hypot(*x[:2])), 1e-9)
    return np.array([[*x[:2], *(speed * towards), x[2], angle, 0.0]])


def moved_objects(commands: Float[np.ndarray, "r 7"], starts: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, "r 2"]:
    """Positions of the objects (m) after all pushes, and one more second without pushes.

    ``commands`` have, for each robot, x, y (m), vx, vy (m/s), duration (0.1 s), angle (rad) and spin (rad/s).
    """
    b2 = _box2d()
    world = b2.b2World(gravity=(0.0, 0.0), doSleep=True)
    ground = world.CreateStaticBody(position=(0.0, 0.0))

    def body(place: Any, angle: float, shape: Any, density: float, friction: float, force: float, torque: float) -> Any:
        solid = world.CreateDynamicBody(position=(float(place[0]), float(place[1])), angle=float(angle))
        solid.CreateFixture(shape=shape, density=density, friction=friction)
        world.CreateFrictionJoint(bodyA=ground, bodyB=solid, maxForce=force, maxTorque=torque, collideConnected=True)
        return solid

    shapes, box = [b2.b2CircleShape(radius=1.0)], b2.b2PolygonShape(box=(0.3, 1.0))
    if len(starts) == 2:  # the hand of the authors' second program is turned by a quarter turn
        shapes, box = [b2.b2PolygonShape(box=(0.5, 0.5)), *shapes], b2.b2PolygonShape(box=(1.0, 0.3))
    objects = [body(place, 0.0, shape, 0.05, 0.01, 5.0, 2.0) for place, shape in zip(starts, shapes, strict=True)]
    hands = [body(row[:2], row[5], box, 0.1, 0.1, 2.0, 2.0) for row in commands]
    last_steps = [int(10.0 * row[4]) for row in commands]
    for step in range(max(last_steps) + _FREE):
        for hand, row, last_step in zip(hands, commands, last_steps, strict=True):
            if step < last_step:
                velocity = b2.b2Vec2(float(row[2]), float(row[3]))
                hand.ApplyTorque(hand.mass * _GAIN * (float(row[6]) - hand.angularVelocity), wake=True)
                hand.ApplyForce(hand.mass * _GAIN * (velocity - hand.linearVelocity), hand.position, wake=True)
        world.Step(_STEP, _ITERATIONS, _ITERATIONS)
        world.ClearForces()
    return np.array([[made.position.x, made.position.y] for made in objects])

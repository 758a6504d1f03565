"""Robots that push a round object towards a goal on a plane, as a function of their commands; needs the extra box2d."""

import math
import warnings
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, needed
from swarmbo_envs.functions.additive_function import AdditiveFunction, Points, Values

_STEP, _ITERATIONS, _FREE = 0.01, 10, 100
_GAIN = 30.0  # wrench per mass and error of velocity
_FULL_TURN = 2.0 * math.pi
_LOW = {3: (-5.0, -5.0, 1.0), 4: (-5.0, -5.0, 1.0, 0.0), 14: (-5.0, -5.0, -10.0, -10.0, 2.0, 0.0, -5.0) * 2}
_HIGH = {3: (5.0, 5.0, 30.0), 4: (5.0, 5.0, 30.0, _FULL_TURN), 14: (5.0, 5.0, 10.0, 10.0, 30.0, _FULL_TURN, 5.0) * 2}
_NAMES = ("x", "y", "vx", "vy", "duration", "angle", "spin")
_VARIABLES = {3: ("x", "y", "duration"), 4: ("x", "y", "duration", "angle")}
_STARTS, _GOALS = np.array([[0.0, 2.0], [0.0, -2.0]]), np.array([[4.0, 3.5], [-4.0, 3.5]])


def push(n_variables: int = 3, seed: int = 0) -> AdditiveFunction:
    """Distance of pushed objects to their goals, with the sign changed, by Box2D; one factor, maximum unknown.

    3 variables: position (x, y) of a hand, and the duration of a push towards the object at the origin, with 5 m/s. 4:
    also the angle of the hand; with 10 m/s. The value is 5 less the distance to a goal that is drawn from a seed, so 5
    is a bound. 14: x, y, vx, vy, duration, angle and spin of each of two robots; the value is the sum of how much two
    objects approach fixed goals.

    Source: Wang & Jegelka 2017 (max-value entropy search), 3 and 4 variables; Wang et al. 2018 (ensemble Bayesian
    optimisation), 14, whose program orders the variables differently. Without the noise of the hand's velocity.

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
    alone = n_variables < 14
    goals = stream(seed, "push goal").uniform(-5.0, 5.0, (1, 2)) if alone else _GOALS
    low, high, scope = np.array(_LOW[n_variables]), np.array(_HIGH[n_variables]), tuple(range(n_variables))
    term = partial(_pushed, goals=goals, starts=np.zeros((1, 2)) if alone else _STARTS)
    names = _VARIABLES.get(n_variables, tuple(f"{name}_{robot}" for robot in (1, 2) for name in _NAMES))
    return AdditiveFunction(f"push-{n_variables}", low, high, {"f": scope}, {"f": term}, variables=names)


def _box2d() -> Any:
    """Import the package quietly: an import that warns kills the process where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return needed("Box2D", "box2d", "'push'")


def _pushed(X: Points, goals: Float[np.ndarray, "r 2"], starts: Float[np.ndarray, "r 2"]) -> Values:
    best = 5.0 if len(goals) == 1 else float(np.linalg.norm(goals - starts, axis=1).sum())
    ends = np.array([moved_objects(_commands(x), starts) for x in X])
    return best - np.linalg.norm(ends - goals, axis=2).sum(axis=1)


def _commands(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "r 7"]:
    """Position, velocity, duration, angle and spin of each robot."""
    if len(x) == 14:
        return x.reshape(2, 7)
    speed, angle = (5.0, math.atan2(x[1], x[0])) if len(x) == 3 else (10.0, x[3])
    if len(x) == 3 and x[0] < 0.0:  # atan(y / x) of the authors, which is the same hand turned by half a turn
        angle += math.pi
    towards = -x[:2] / max(float(np.hypot(*x[:2])), 1e-9)
    return np.array([[*x[:2], *(speed * towards), x[2], angle, 0.0]])


def moved_objects(commands: Float[np.ndarray, "r 7"], starts: Float[np.ndarray, "r 2"]) -> Float[np.ndarray, "r 2"]:
    """Positions of the objects after all pushes, and a second without any.

    Args:
        commands: For each robot x, y (m), vx, vy (m/s), duration (s), angle (rad) and spin (rad/s).
        starts: First positions of the objects (m).
    """
    b2 = _box2d()
    world = b2.b2World(gravity=(0.0, 0.0), doSleep=True)
    ground = world.CreateStaticBody(position=(0.0, 0.0))

    def body(place: Any, angle: float, shape: Any, density: float, friction: float, force: float, torque: float) -> Any:
        made = world.CreateDynamicBody(position=(float(place[0]), float(place[1])), angle=float(angle))
        made.CreateFixture(shape=shape, density=density, friction=friction)
        world.CreateFrictionJoint(bodyA=ground, bodyB=made, maxForce=force, maxTorque=torque, collideConnected=True)
        return made

    objects = [body(place, 0.0, b2.b2CircleShape(radius=1.0), 0.05, 0.01, 5.0, 2.0) for place in starts]
    box = b2.b2PolygonShape(box=(0.3, 1.0))
    hands = [body(row[:2], row[5], box, 0.1, 0.1, 2.0, 2.0) for row in commands]
    last = [int(10.0 * row[4]) for row in commands]
    for step in range(max(last) + _FREE):
        for hand, row, end in zip(hands, commands, last, strict=True):
            if step < end:
                velocity = b2.b2Vec2(float(row[2]), float(row[3]))
                hand.ApplyTorque(hand.mass * _GAIN * (float(row[6]) - hand.angularVelocity), wake=True)
                hand.ApplyForce(hand.mass * _GAIN * (velocity - hand.linearVelocity), hand.position, wake=True)
        world.Step(_STEP, _ITERATIONS, _ITERATIONS)
        world.ClearForces()
    return np.array([[made.position.x, made.position.y] for made in objects])

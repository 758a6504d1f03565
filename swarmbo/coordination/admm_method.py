"""What agents do in ADMM, written once for one process and for agents: see :mod:`swarmbo.coordination.share`."""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.ascent import Climbed, ascend
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import Copy
from swarmbo.coordination.polish import polish
from swarmbo.coordination.refinement import tables
from swarmbo.coordination.share import (
    Choose,
    Copies,
    Exchange,
    Gather,
    PartOutcome,
    Request,
    Share,
    Steps,
    finish,
    worth,
)
from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.rng import stream

if TYPE_CHECKING:
    from swarmbo.coordination.admm import ADMM


_BALANCED = 100  # rounds; to converge, the penalty must stay as it is in the end (Boyd et al. 2011, section 3.4.1)
_FEWEST = 16  # random points by which the spread of values is judged: the spread of one is 0, of a few anything


class Residuals(NamedTuple):
    """How the rounds ended."""

    rounds: int
    has_converged: bool
    primal: float
    dual: float


def together(settings: "ADMM", share: Share, index: int, seed: int) -> Steps:
    """Agree within a part of several factors: rounds of consensus, recombination, polish.

    Args:
        settings: Of ADMM.
        share: Of the part.
        index: Of the part.
        seed: Of the random starts.
    """
    Z, natural = yield from _starts(settings, share, seed)
    agreed, residuals = yield from _rounds(settings, share, Z, natural)
    pool = np.concatenate([Z, agreed])
    values = yield from worth(share, pool)
    order = np.argsort(-values, kind="stable")
    best = pool[order[: settings.polished]]
    n_values = settings.values_of(share.part)
    if n_values > 1:
        joined = yield from _recombined(share, pool[order[:n_values]])
        best = np.concatenate([best, joined[None]])
    best, values, before = yield from polish(share, best, settings.polish_steps)
    winner = int(values.argmax())
    is_polished = settings.polish_steps > 0 and before.max() > -np.inf
    gain = float(values[winner] - before.max()) if is_polished else None
    outcome = PartOutcome(index, {}, {}, *residuals, gain)
    return (yield from finish(share, best[winner], outcome))


def alone(settings: "ADMM", share: Share, index: int, seed: int) -> Steps:
    """A part of one factor needs no agreement: its owner climbs, and tells the owners of the variables."""
    point = np.zeros(len(share.functions.low))
    if share.factors:
        point = climb_alone(settings, share.functions, share.factors, seed)
    return (yield from finish(share, point, PartOutcome(index, {}, {})))


def climb_alone(
    settings: "ADMM", functions: LocalFunctions, factors: tuple[str, ...], seed: int
) -> Float[np.ndarray, " n"]:
    """Factors that share no variable climb by themselves, those of equal size side by side; other entries are 0."""
    out = np.zeros(len(functions.low))
    drawn = joint_starts(settings, functions, [v for f in factors for v in functions.graph.scope(f)], seed)
    n_given = min(len(functions.starts), settings.starts)
    for stack in stacks_of(functions.graph, factors):
        low, high = functions.low[stack.columns][:, None, :], functions.high[stack.columns][:, None, :]

        def climbed(X: np.ndarray, stack: Any = stack) -> Any:
            nothing = tuple(np.zeros(X.shape[:2]) for _ in range(functions.n_exchanges))
            return functions.value_and_gradient(stack, X, nothing)

        X = stack.take(drawn)
        nothing = tuple(np.zeros(X.shape[:2]) for _ in range(functions.n_exchanges))
        worth_of = functions.value(stack, X, nothing)
        worth_of[:, :n_given] = np.inf  # given starts are always climbed from
        order = np.argsort(-worth_of, axis=1, kind="stable")[:, : settings.starts]
        X, values, _ = ascend(
            climbed, np.take_along_axis(X, order[:, :, None], axis=1), low, high, settings.alone_steps
        )
        out[stack.columns] = X[np.arange(len(X)), values.argmax(axis=1)]
    return out


def joint_starts(
    settings: "ADMM", functions: LocalFunctions, variables: list[str] | tuple[str, ...], seed: int, fewest: int = 0
) -> Float[np.ndarray, "m n"]:
    """Joint points that are looked at for starts: the given ones, then random ones that everyone can draw.

    Only columns of ``variables`` are drawn; others are 0. ``fewest`` random ones there are at least; the first ones are
    the same, however many there are.
    """
    low, high = functions.low, functions.high
    given = np.clip(functions.starts[: settings.starts], low, high)
    n_random = max(settings.screened, settings.starts, fewest)
    place = {variable: i for i, variable in enumerate(functions.graph.variables)}
    drawn = np.zeros((n_random, len(low)))
    for variable in variables:
        drawn[:, place[variable]] = stream(seed, "starts", variable=variable).random(n_random)
    return np.concatenate([given, low + drawn * (high - low)])


def _starts(
    settings: "ADMM", share: Share, seed: int
) -> Generator[Request, Any, tuple[Float[np.ndarray, "m n"], float]]:
    """Joint points to start from, best first, and the part's natural penalty."""
    mine = {variable: None for factor in share.factors for variable in share.part.scope(factor)}
    drawn = joint_starts(settings, share.functions, tuple(mine), seed, fewest=_FEWEST)
    n_given = min(len(share.functions.starts), settings.starts)
    values = yield from worth(share, drawn)
    natural = natural_penalty(values, n_given)
    n_looked_at = n_given + max(settings.screened, settings.starts)  # further ones are there for the spread only
    values = values[:n_looked_at].copy()
    values[:n_given] = np.inf
    return drawn[np.argsort(-values, kind="stable")[: settings.starts]], natural


def natural_penalty(values: Float[np.ndarray, " m"], n_given: int) -> float:
    """The spread of a part's values over the squared spread of its box, whatever their unit.

    Args:
        values: At the starts that were given, then at random points of the box.
        n_given: How many were given. They lie where the sum is large and would bias the spread, so they count only
            where it is flat at all random points.

    Returns:
        Above 0: 1 where every value is the same, for then any penalty will do.
    """
    for seen in (values[n_given:], values):
        known = seen[np.isfinite(seen)]
        if len(known) and (spread := float(known.std())) > 4.0 * np.finfo(float).eps * float(np.abs(known).max()):
            return 12.0 * spread  # a uniform variable's variance is 1/12 of its squared side
    return 1.0


def _rounds(
    settings: "ADMM", share: Share, Z: Float[np.ndarray, "m n"], natural: float
) -> Generator[Request, Any, tuple[Float[np.ndarray, "m n"], Residuals]]:
    """The rounds of consensus, from all starts at once."""
    functions, sides = share.functions, share.sides
    is_shared = share.degree > 1.0
    n_copies = sum(len(share.part.scope(f)) for f in share.part.factors)
    eta = np.full(len(Z), settings.penalty * natural)  # per squared side
    X = share.take(Z)
    U = [np.zeros_like(x) for x in X]
    steps = [np.broadcast_to(1.0 / eta, x.shape[:2]) for x in X]  # right where the penalty rules; longer ones follow
    primal = dual = np.inf
    for turn in range(1, settings.rounds + 1):
        received = yield Exchange(X)
        weights = np.where(is_shared, eta[:, None] / sides**2, 0.0)  # nobody else wants a say in the others
        climbs = _climbed(settings, share, X, U, Z, share.take(weights), received, steps)
        X, steps = [climb.X for climb in climbs], [climb.step for climb in climbs]
        said = yield Gather(Copy, [x + u for x, u in zip(X, U, strict=True)], len(Z))
        agreed = np.clip(said / share.degree, functions.low, functions.high)
        own_sides = [sides[stack.columns][:, None, :] for stack in share.stacks]
        gaps = [x - z for x, z in zip(X, share.take(agreed), strict=True)]
        moved = share.take((agreed - Z) / sides)
        totals = yield share.terms(
            len(Z),
            [((gap / side) ** 2).sum(axis=-1) for gap, side in zip(gaps, own_sides, strict=True)],
            [(step**2).sum(axis=-1) for step in moved],
        )
        U = [u + gap for u, gap in zip(U, gaps, strict=True)]
        Z, (primals, duals) = agreed, np.sqrt(totals / n_copies)
        duals = eta / natural * duals
        primal, dual = float(primals.max()), float(duals.max())
        if primal <= settings.tolerance and dual <= settings.tolerance:
            return Z, Residuals(turn, True, primal, dual)
        if turn <= _BALANCED:
            grow, shrink = primals > settings.balance * duals, duals > settings.balance * primals
            goes_on = np.maximum(primals, duals) > settings.tolerance
            factor = np.where(goes_on, np.where(grow, 2.0, np.where(shrink, 0.5, 1.0)), 1.0)
            eta = eta * factor
            U = [u / factor[:, None] for u in U]
    return Z, Residuals(settings.rounds, False, primal, dual)


def _climbed(
    settings: "ADMM",
    share: Share,
    X: Copies,
    U: Copies,
    Z: Float[np.ndarray, "m n"],
    weights: Copies,
    received: Any,
    steps: Sequence[Float[np.ndarray, "_g m"]],
) -> list[Climbed]:
    """Every factor climbs its augmented Lagrangian, with steps as long as in the round before."""
    functions = share.functions
    out: list[Climbed] = []
    rows = zip(share.stacks, X, U, share.take(Z), weights, received, steps, strict=True)
    for stack, x, u, z, weight, got, step in rows:

        def lagrangian(
            x: np.ndarray, stack: Any = stack, centre: Any = z - u, weight: Any = weight, got: Any = got
        ) -> Any:
            value, gradient = functions.value_and_gradient(stack, x, got)
            gap = x - centre
            return value - 0.5 * (weight * gap**2).sum(axis=-1), gradient - weight * gap

        low, high = share.box(stack)
        out.append(ascend(lagrangian, x, low, high, settings.inner_steps, first_step=step))
    return out


def _recombined(share: Share, pool: Float[np.ndarray, "c n"]) -> Generator[Request, Any, Float[np.ndarray, " n"]]:
    """For each variable its value in one of the joint points, chosen by max-sum; the first point is the incumbent."""
    points = share.take(pool[:1])
    received = yield Exchange(points)
    built: dict[str, Table] = {}
    for stack, got in zip(share.stacks, received, strict=True):
        numbers = np.array([phase[:, 0] for phase in got]).reshape(len(got), len(stack.factors)).T
        found = tables(share.functions, stack, pool.T, numbers.tolist())
        built.update(zip(stack.factors, found, strict=True))
    chosen: Mapping[str, int] = yield Choose(built)
    place = {variable: i for i, variable in enumerate(share.functions.graph.variables)}
    out = pool[0].copy()
    for variable, row in chosen.items():
        out[place[variable]] = pool[row, place[variable]]
    return out


def n_values(part: FactorGraph, entries: int, most: int) -> int:
    """How many values each variable may choose from, so that no table has more than ``entries`` entries."""
    arity, count = part.max_factor_size, most
    while count > 1 and count**arity > entries:
        count -= 1
    return count

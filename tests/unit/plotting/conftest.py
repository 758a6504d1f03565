"""Synthetic runs: robots move over a known field and measure it; some measurements fail."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.plotting import World
from swarmbo.records import Recommendation, RoundRecord, Sample, Score, SolveReport, Traffic
from swarmbo.spaces import Domain

LOW, HIGH = np.array([0.0, 0.0]), np.array([1000.0, 800.0])


def field(X: np.ndarray) -> np.ndarray:
    """Two hills over a slope, in metres; the higher one at (700, 550)."""
    high = 220.0 * np.exp(-0.5 * (((X - [700.0, 550.0]) / [130.0, 110.0]) ** 2).sum(axis=1))
    low = 140.0 * np.exp(-0.5 * (((X - [220.0, 250.0]) / [120.0, 160.0]) ** 2).sum(axis=1))
    return 300.0 + high + low + 0.05 * X[:, 0]


def axes() -> Axes:
    return Figure().subplots()


@dataclass(frozen=True)
class Run:
    records: list[RoundRecord]
    world: World
    settings: ExactGPSettings


def _world(points: str) -> World:
    domain = Domain(LOW, HIGH)
    if points == "none":
        return World(domain, name="unknown field", unit="m", axis_unit="m")
    if points == "lattice":
        X = np.stack(np.meshgrid(np.linspace(0, 1000, 41), np.linspace(0, 800, 33)), axis=-1).reshape(-1, 2)
    else:  # sites along a bend, like a river
        rng = stream(1, "sites")
        along = rng.uniform(0.0, 1.0, 150)
        X = np.column_stack([100 + 800 * along, 150 + 500 * along**2]) + rng.uniform(-90, 90, (150, 2))
    values = field(X)
    top = int(values.argmax())
    return World(domain, "two hills", "m", "m", X, values, float(values[top]), X[top])


def make_run(
    robots: int = 4, rounds: int = 8, truth: str = "lattice", failing: float = 0.1, zero_regret: bool = False
) -> Run:
    world, settings, rng = _world(truth), ExactGPSettings(), stream(0, "run")
    agents = [f"robot_{i}" for i in range(robots)]
    places = rng.uniform(LOW + 60, [HIGH[0] * 0.45, HIGH[1] * 0.5], (robots, 2))
    belief, records = ExactGP.create(settings, world.domain), list[RoundRecord]()
    best: Recommendation | None = None
    for number in range(rounds + 1):
        if number:
            pull = 0.22 * (np.array([690.0, 540.0]) - places)
            places = np.clip(places + pull + rng.normal(0, 70, places.shape), LOW, HIGH)
        true, failed = field(places), rng.uniform(size=robots) < failing
        measured = [None if failed[i] else float(true[i] + rng.normal(0, 3.0)) for i in range(robots)]
        targets = places.tolist() if number else [None] * robots
        samples = [Sample(*row) for row in zip(agents, places.tolist(), measured, targets, strict=True)]
        recommendation = None
        if not failed.all():
            y = np.array([value for value in measured if value is not None])
            belief = belief.update(places[~failed], y).fit(stream(0, "fit", round=number))
            top = int(belief.y.argmax())
            best = Recommendation(belief.X[top].tolist(), float(belief.y[top]), 0.0)
        if belief.n_data:
            mean, var = belief.posterior(belief.X)
            top = int(mean.argmax())
            recommendation = Recommendation(belief.X[top].tolist(), float(mean[top]), float(np.sqrt(var[top])))
        score = None
        if world.values is not None and world.points is not None and world.maximum is not None:
            reached = float(field(belief.X).max()) if belief.n_data else 300.0
            error = belief.posterior(world.points)[0] - world.values
            score = Score(
                simple_regret=0.0 if zero_regret and number > rounds // 2 else max(world.maximum - reached, 0.0),
                batch_regret=max(world.maximum - float(true.max()), 0.0),
                total_regret=float((world.maximum - true).sum()),
                recommendation_regret=None if recommendation is None else max(world.maximum - recommendation.mean, 0.0),
                map_rmse=float(np.sqrt(np.mean(error**2))) if belief.n_data else None,
            )
        agreed = Traffic(6 * robots, 900 * robots + 40 * number, 9 * robots)
        close = [(i, j) for i, j in combinations(range(robots), 2) if np.linalg.norm(places[i] - places[j]) < 250]
        records.append(
            RoundRecord(
                round=number,
                samples=samples,
                query=f"q{number}" if number else None,
                report=SolveReport("exact", 6, 1.0, 0.0, agreed) if number else None,
                sharing=Traffic(robots * (robots - 1), 48 * robots * (robots - 1), robots * robots),
                best=best,
                recommendation=recommendation,
                hyperparameters=msgspec.to_builtins(belief.hyperparameters),
                score=score,
                links=[(agents[i], agents[j]) for i, j in close],
            )
        )
    return Run(records, world, settings)


def belief_by(made: Run, agents: set[str], until: int | None = None) -> ExactGP:
    """The belief on the data of some agents in the first records, computed from scratch."""
    records = made.records[:until]
    own = [s for r in records for s in r.samples if s.agent in agents and s.measurement is not None]
    learned = msgspec.convert(records[-1].hyperparameters, Hyperparameters)
    X, y = np.array([s.location for s in own]), np.array([s.measurement for s in own])
    return ExactGP.from_hyperparameters(made.settings, made.world.domain, learned, X, y)


def map_error(belief: ExactGP, world: World) -> float:
    return np.sqrt(np.mean((belief.posterior(world.points)[0] - world.values) ** 2))


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    made: dict[tuple, Run] = {}

    def cached(**options: object) -> Run:
        key = tuple(sorted(options.items()))
        if key not in made:
            made[key] = make_run(**options)  # pyright: ignore[reportArgumentType]
        return made[key]

    return cached

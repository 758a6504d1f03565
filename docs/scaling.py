"""How the time of a decision grows with robots and with factors: writes docs/images/scaling.png, prints tables.

The theory: a chain of N robots with Markov order B has N - B full blocks, and each costs one table and one elimination.
With outcomes by factor, every factor is fitted by itself, and agents agree in so many rounds, however many they are.
Times are those of the process, so busy neighbours disturb little.
Run it with one BLAS thread: OPENBLAS_NUM_THREADS=1 python docs/scaling.py
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.acquisition import Situation, chain_acquisition
from swarmbo.belief.gp import prior
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo_envs import robot_team_v0

ORDER, PLACES, MEASUREMENTS = 2, 64, 100
ROBOTS = (4, 8, 16, 24, 32, 48, 64)
FACTORS, EVALUATIONS = (30, 100, 300, 1000), 20


def situation(n_robots: int) -> Situation:
    """Robots spread over a square, each with 64 places of its own around it, after 100 measurements."""
    rng = np.random.default_rng(0)
    domain = sb.Domain(np.zeros(2), np.full(2, 1000.0))
    X = domain.from_unit(rng.random((MEASUREMENTS, 2)))
    y = np.sin(X[:, 0] / 150.0) + np.cos(X[:, 1] / 220.0) + 0.05 * rng.normal(size=MEASUREMENTS)
    belief = sb.ExactGP.create(sb.ExactGPSettings(), domain).update(X, y).fit(rng)
    positions = {f"robot_{n}": domain.from_unit(rng.random(2)) for n in range(n_robots)}
    places = {a: np.clip(p + rng.normal(scale=60.0, size=(PLACES, 2)), 0.0, 1000.0) for a, p in positions.items()}
    return Situation(tuple(positions), places, positions, positions, belief, None, domain, 10, 25, 0)


def seconds(call: Callable[[], object]) -> float:
    """The shortest of five runs."""
    taken: list[float] = []
    for _ in range(5):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def decide(now: Situation) -> None:
    """One joint decision, from the belief to the agreement."""
    problem = sb.DBGPUCB(markov_order=ORDER, exploration="annealed").local_problem(now)
    assert problem is not None
    sb.Exact().solve(problem.graph, problem.tables)


def team_of(n_factors: int) -> sb.Team:
    """A chain of pairs, every factor with outcomes of its own; nothing is fitted yet."""
    graph = sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n_factors)})
    X = np.random.default_rng(0).random((EVALUATIONS, n_factors + 1))
    team = sb.Team(graph, {f"x{i}": (0.0, 1.0) for i in range(n_factors + 1)}, outcomes="per-factor", seed=0)
    team.attach(X, -((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1]))
    return team


def asked(n_factors: int) -> float:
    """Seconds of a first query: hyper-parameters from scratch, then the agreement."""
    team, start = team_of(n_factors), time.process_time()
    team.ask()
    return time.process_time() - start


def ties() -> None:
    """What is lost where factors have hyper-parameters in common: errors of predictions with and without."""
    n = 130
    graph = sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n)})
    for kind in ("alike", "unlike"):
        for t in (50, 200):
            rng = np.random.default_rng(1)
            height = np.ones(n) if kind == "alike" else np.exp(rng.normal(size=n))
            pace = np.full(n, 5.0) if kind == "alike" else rng.uniform(1.0, 12.0, n)
            X = rng.random((t + 1000, n + 1))
            parts = height * (0.3 * np.sin(pace * X[:, :-1]) - (X[:, 1:] - X[:, :-1] - 0.2) ** 2)
            y, errors = parts.sum(axis=1), list[float]()
            for tied_from in (n + 1, n):
                prior.TIED_FROM = tied_from
                belief = sb.AdditiveGP.create(AdditiveGPSettings(), graph, sb.Domain(np.zeros(n + 1), np.ones(n + 1)))
                mean = belief.update(X[:t], y[:t]).fit(rng).posterior_mean(X[t:])
                errors.append(float(np.sqrt(((mean - y[t:]) ** 2).mean()) / y[t:].std()))
            print(f"{kind:7s} {t:4d} evaluations: each its own {errors[0]:.2f}, tied {errors[1]:.2f}")  # noqa: T201


def teams() -> None:
    """What it costs that tables of a large team are cut: the mean of what is measured in a round, and the map's error.

    Of 64 and 96 robots, in standard deviations of the field; with all candidates, and as it is.
    """
    cut = chain_acquisition._LARGE  # pyright: ignore[reportPrivateUsage]
    for robots, seed in itertools.product((64, 96), range(5)):
        found = list[str]()
        for large in (2**20, cut):
            chain_acquisition._LARGE = large  # pyright: ignore[reportPrivateUsage]
            env = robot_team_v0.parallel_env(robots=robots, noise_std=5.0, max_cycles=5)
            team = sb.Team.for_env(env, acquisition=sb.DBGPUCB(exploration="annealed"), seed=seed)
            observations, infos = env.reset(seed=seed)
            measured, truth = list[float](), env.unwrapped.ground_truth()
            values = truth.values
            for _ in range(4):
                step = env.step(team.act(observations, infos))
                team.observe(*step)
                observations, infos = step[0], step[4]
                measured += [info["measurement"] for info in infos.values()]
            mean = team.belief.posterior_mean(truth.points)
            error = np.sqrt(((mean - values) ** 2).mean()) / values.std()
            found.append(f"{(np.mean(measured) - values.mean()) / values.std():6.3f} {error:6.3f}")
        print(f"{robots} robots, seed {seed}: all candidates {found[0]}, as it is {found[1]}", flush=True)  # noqa: T201


def near() -> None:
    """How far what the nearest of 5,000 measurements say is from what all say, where a robot can go, at worst."""
    env = robot_team_v0.parallel_env(robots=16, noise_std=5.0, max_cycles=3)
    _, infos = env.reset(seed=0)
    truth, rng = env.unwrapped.ground_truth(), np.random.default_rng(0)
    domain = sb.Domain(truth.points.min(axis=0), truth.points.max(axis=0))
    X = domain.from_unit(rng.random((5000, 2)))
    belief = sb.ExactGP.create(sb.ExactGPSettings(), domain).update(X, truth.value(X) + 5.0 * rng.normal(size=len(X)))
    belief, worst = belief.fit(rng), dict[int, list[tuple[float, float]]]()
    for agent in list(infos)[::5]:
        places = env.unwrapped.candidates(agent)[::4]
        mean, var = belief.posterior(places)
        for n in (500, 800, 1000):
            by_near, var_by_near = belief.near(places, n).posterior(places)
            off = np.sqrt(var_by_near / var).max(), (np.abs(by_near - mean) / np.sqrt(var)).max()
            worst.setdefault(n, []).append(off)
    for n, off in worst.items():
        std, mean = np.max(off, axis=0)
        print(f"by {n:4d}: deviations {100 * (std - 1):6.2f} % larger, means off by {mean:.2f} of one")  # noqa: T201


def main() -> None:
    """Measure, print, draw."""
    if "--near" in sys.argv:
        near()
        return
    if "--teams" in sys.argv:
        teams()
        return
    if "--ties" in sys.argv:
        ties()
        return
    chain_acquisition._LARGE = 2**20  # pyright: ignore[reportPrivateUsage]  # all robots with all candidates
    with threadpool_limits(1, user_api="blas"):
        cost = {n: seconds(functools.partial(decide, situation(n))) for n in ROBOTS}
        for n in FACTORS:
            asked(n)  # imports, and what is compiled: from some number of factors on
        by_factor = np.array([min(asked(n) for _ in range(3)) for n in FACTORS])
    blocks = np.array([n - ORDER for n in ROBOTS])
    per_block = np.array([cost[n] for n in ROBOTS]) / blocks
    for n, block, each in zip(ROBOTS, blocks, per_block, strict=True):
        print(f"{n:3d} robots  {block:3d} full blocks  {1e3 * cost[n]:7.1f} ms  {1e3 * each:6.2f} ms a block")  # noqa: T201
    for n, taken in zip(FACTORS, by_factor, strict=True):
        print(f"{n:4d} factors  {taken:6.2f} s  {1e3 * taken / n:6.2f} ms a factor")  # noqa: T201
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(blocks, 1e3 * np.array(list(cost.values())), "o-", label="measured")
    left.plot(blocks, 1e3 * np.median(per_block) * blocks, "--", label="linear: median time a block")
    left.set_xlabel(f"full blocks N - B (B = {ORDER}, {PLACES} candidates, {MEASUREMENTS} measurements)")
    left.set_ylabel("time of a joint decision in a field (ms)")
    right.loglog(FACTORS, by_factor, "o-", label="measured")
    right.loglog(FACTORS, np.median(by_factor / FACTORS) * np.array(FACTORS), "--", label="linear: median a factor")
    right.set_xlabel(f"factors in a chain (outcomes by factor, {EVALUATIONS} evaluations)")
    right.set_ylabel("time of a first query (s)")
    for axes in (left, right):
        axes.legend()
    out = Path(__file__).parent / "images" / "scaling.png"
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main()

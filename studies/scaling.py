"""Time of a decision by the number of robots and of factors, as docs/images/scaling.png and as text.

    python studies/scaling.py
    python studies/scaling.py robots sensors factors     # growth to 1,000 agents and 100,000 factors (half an hour)

The theory: a chain of N robots with Markov order B has N - B full blocks, and each costs one table and one elimination.
With outcomes per factor, every factor is fitted separately, and the number of rounds of an agreement does not grow with
the number of agents. Times are processor times, so other processes hardly matter.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from study import DOCS, markdown, say
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.acquisition import Situation, chain_acquisition
from swarmbo_envs import robot_team_v0, sensor_field_v0

ORDER, PLACES, MEASUREMENTS = 2, 64, 100
ROBOTS = (4, 8, 16, 24, 32, 48, 64)
FACTORS, EVALUATIONS = (30, 100, 300, 1000), 20
GROWTH = {"robots": (16, 64, 256, 1000), "sensors": (16, 300, 1000), "factors": (300, 1000, 10_000, 100_000)}


def situation(n_robots: int) -> Situation:
    """Robots spread over a square, each with 64 candidate locations around it, after 100 measurements."""
    rng = np.random.default_rng(0)
    domain = sb.Domain(np.zeros(2), np.full(2, 1000.0))
    X = domain.from_unit(rng.random((MEASUREMENTS, 2)))
    y = np.sin(X[:, 0] / 150.0) + np.cos(X[:, 1] / 220.0) + 0.05 * rng.normal(size=MEASUREMENTS)
    belief = sb.ExactGP.create(sb.ExactGPSettings(), domain).update(X, y).fit(rng)
    positions = {f"robot_{n}": domain.from_unit(rng.random(2)) for n in range(n_robots)}
    places = {a: np.clip(p + rng.normal(scale=60.0, size=(PLACES, 2)), 0.0, 1000.0) for a, p in positions.items()}
    return Situation(tuple(positions), places, positions, positions, belief, None, domain, 10, 25, 0)


def decided(now: Situation) -> float:
    """Seconds of a joint decision, from the belief to the agreement."""
    start = time.process_time()
    problem = sb.DBGPUCB(markov_order=ORDER, exploration="annealed").local_problem(now)
    assert problem is not None
    sb.Exact().solve(problem.graph, problem.tables)
    return time.process_time() - start


def team_of(n_factors: int) -> sb.Team:
    """A team for a chain of pairs, with outcomes per factor; nothing is fitted yet."""
    graph = sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n_factors)})
    X = np.random.default_rng(0).random((EVALUATIONS, n_factors + 1))
    team = sb.Team(graph, {f"x{i}": (0.0, 1.0) for i in range(n_factors + 1)}, outcomes="per-factor", seed=0)
    team.attach(X, -((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1]))
    return team


def queried(n_factors: int) -> tuple[float, float]:
    """Seconds of a first query (fit and agreement), and of telling its outcome and the next query."""
    team, start = team_of(n_factors), time.process_time()
    query = team.ask()
    first = time.process_time() - start
    start = time.process_time()
    team.tell(query, dict.fromkeys(team.problem.channels, 0.0))
    team.ask()
    return first, time.process_time() - start


def robot_team(n_robots: int) -> tuple[float, float]:
    """Seconds of robots that search the default map for its summit, as in ``swarmbo run robots``."""
    env = robot_team_v0.parallel_env(robots=n_robots, noise_std=5.0)
    return played(env, sb.Team.for_env(env, seed=0, rounds=25))


def sensor_team(n_sensors: int) -> tuple[float, float]:
    """Seconds of sensors that map a changing field and pay for samples, as in ``swarmbo run swarm-sensors``."""
    draws = {"size_m": [4000.0, 4000.0], "lengthscale_m": 400.0, "seed": 0, "time": {"lengthscale_rounds": 12.0}}
    world: dict[str, Any] = {"field": {"gp": draws}, "noise_std": 0.2, "energy_price": 0.35, "radio_range_m": 500.0}
    env = sensor_field_v0.parallel_env(sensors=n_sensors, task="map", **world)
    belief = sb.ExactGPSettings(refit_every=4, restarts=0, time=sb.TimeAxis(kernel="matern32", lengthscale_median=10.0))
    return played(env, sb.Team.for_env(env, belief=belief, acquisition=sb.Information(candidates=12), seed=0))


def played(env: Any, team: sb.Team) -> tuple[float, float]:
    """Seconds of the fit after all agents measured once, and of the round that follows: decide, measure, learn."""
    observations, infos = env.reset(seed=0)
    start = time.process_time()
    team.begin(infos)
    team.refit()
    fit = time.process_time() - start
    start = time.process_time()
    team.observe(*env.step(team.act(observations, infos)))
    return fit, time.process_time() - start


MEASURES = {"robots": robot_team, "sensors": sensor_team, "factors": queried}


def measured(what: str, n: int) -> tuple[float, float, float]:
    """The two times for a size, without imports and compilation, and this process's peak memory in MB."""
    with threadpool_limits(1, user_api="blas"):
        MEASURES[what](GROWTH[what][0])
        first, second = MEASURES[what](n)
    return first, second, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def growth(what: str) -> None:
    """Print how the two times grow with the number of agents or factors, with exponents, and the memory."""
    rows, before = list[list[str]](), None
    for n in GROWTH[what][1:]:
        spawn = multiprocessing.get_context("spawn")  # one process per size, to measure its memory
        with ProcessPoolExecutor(1, mp_context=spawn) as one:
            found = np.array(one.submit(measured, what, n).result())
        powers = ["", ""]
        if before is not None:
            powers = [f"{p:.2f}" for p in np.log(found / before[1])[:2] / np.log(n / before[0])]
        rows.append([f"{n:,}", f"{found[0]:.3g}", powers[0], f"{found[1]:.3g}", powers[1], f"{found[2]:,.0f}"])
        before = n, found
        say([str(rows[-1])])
    times = ["first query, s", "tell and next query, s"] if what == "factors" else ["fit, s", "round, s"]
    say(markdown([what, times[0], "exponent", times[1], "exponent", "most MB"], rows, right=True))


def draw(cost: np.ndarray, by_factor: np.ndarray) -> None:
    """Draw measured times and linear growth through the median: robots on the left, factors on the right."""
    blocks, factors = np.array(ROBOTS) - ORDER, np.array(FACTORS)
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(blocks, 1e3 * cost, "o-", label="measured")
    left.plot(blocks, 1e3 * np.median(cost / blocks) * blocks, "--", label="linear: median time a block")
    left.set_xlabel(f"full blocks N - B (B = {ORDER}, {PLACES} candidates, {MEASUREMENTS} measurements)")
    left.set_ylabel("time of a joint decision in a field (ms)")
    right.loglog(factors, by_factor, "o-", label="measured")
    right.loglog(factors, np.median(by_factor / factors) * factors, "--", label="linear: median a factor")
    right.set_xlabel(f"factors in a chain (outcomes by factor, {EVALUATIONS} evaluations)")
    right.set_ylabel("time of a first query (s)")
    for axes in (left, right):
        axes.legend()
    figure.savefig(DOCS / "images" / "scaling.png", dpi=120)


def main() -> None:
    """Measure, print, draw."""
    chain_acquisition._LARGE_TEAM = 2**20  # pyright: ignore[reportPrivateUsage]  # all robots with all candidates
    with threadpool_limits(1, user_api="blas"):
        cost = np.array([min(decided(now) for _ in range(5)) for now in map(situation, ROBOTS)])
        for n in FACTORS:
            queried(n)  # imports and compiles, some code only from a number of factors on
        by_factor = np.array([min(queried(n)[0] for _ in range(3)) for n in FACTORS])
    for n, each in zip(ROBOTS, 1e3 * cost, strict=True):
        block = n - ORDER
        say([f"{n:3d} robots  {block:3d} full blocks  {each:7.1f} ms  {each / block:6.2f} ms a block"])
    for n, taken in zip(FACTORS, by_factor, strict=True):
        say([f"{n:4d} factors  {taken:6.2f} s  {1e3 * taken / n:6.2f} ms a factor"])
    draw(cost, by_factor)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for what in sys.argv[1:]:
            growth(what)
    else:
        main()

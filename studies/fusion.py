"""Accuracy and cost of methods that fuse beliefs: a table of docs/studies/fusion.md for one field.

    python studies/fusion.py --csv survey.csv --x x_m --y y_m --value zinc_ppm --log
    python studies/fusion.py       # a field drawn from a Gaussian process

Each sensor has the measurements nearest to it. Sensors exchange messages until no sensor has news. Then every sensor
predicts the measurements that were held out (five folds). All methods use the same hyper-parameters, fitted to all
measurements of a fold, so the table compares fusion only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
from study import markdown, parser_of, say
from threadpoolctl import threadpool_limits

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.features.feature_gp import FeatureGP, Information, information_of, packed_size
from swarmbo.belief.fusion import (
    CommitteeFlooding,
    CovarianceIntersection,
    FusedView,
    MeasurementFlooding,
    Proposal,
    PushSum,
    exchange,
)
from swarmbo.boundary.csv_measurements import CsvColumns, read_measurements
from swarmbo.boundary.rng import stream
from swarmbo.kernels import draw
from swarmbo.spaces import Domain
from swarmbo.transport import Faults

FOLDS, STEPS, SYNTHETIC, AGENTS = 5, 400, 150, 8
Predictions = list[tuple[np.ndarray, np.ndarray]]  # mean and variance of the field, from each sensor


@dataclass(frozen=True)
class Case:
    """One fold: measurements of each sensor, links between sensors, and locations to predict."""

    data: dict[str, tuple[np.ndarray, np.ndarray]]
    links: "nx.Graph[str]"
    domain: Domain
    proposal: Proposal
    places: np.ndarray

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All measurements."""
        points, outcomes = zip(*self.data.values(), strict=True)
        return np.concatenate(points), np.concatenate(outcomes)

    def information(self, X: np.ndarray, y: np.ndarray) -> Information:
        """Information of measurements about the weights of the features."""
        return information_of(self.proposal.basis, self.proposal.hyperparameters, self.domain, X, y)

    def by_features(self, information: Information) -> tuple[np.ndarray, np.ndarray]:
        """Predictions by random features."""
        h, basis = self.proposal.hyperparameters, self.proposal.basis
        belief = FeatureGP(domain=self.domain, hyperparameters=h, basis=basis, information=information)
        return belief.posterior(self.places)

    def exactly(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predictions by an exact process."""
        h = self.proposal.hyperparameters
        belief = ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, X, y)
        return belief.posterior(self.places)


Found = tuple[Predictions, int, int]  # predictions, bytes, steps
Method = Callable[[Case], Found]


def adding_up(case: Case) -> Found:
    """A wrong method: each sensor adds its neighbours' estimates to its own, until news has reached all sensors."""
    estimates = {name: case.information(X, y) for name, (X, y) in case.data.items()}
    n_steps = nx.diameter(case.links)
    for _ in range(n_steps):
        before = dict(estimates)
        for name in estimates:
            for other in case.links[name]:
                estimates[name] = estimates[name] + before[other]
    n_messages = 2 * case.links.number_of_edges() * n_steps
    n_bytes = 8 * n_messages * packed_size(case.proposal.n_features)
    return [case.by_features(estimate) for estimate in estimates.values()], n_bytes, n_steps


def by_messages(make: Callable[..., FusedView], case: Case) -> Found:
    """Agents exchange messages until no agent has news, or until a consensus has settled on all measurements."""
    agents = [make(name, case.domain, case.proposal) for name in case.data]
    for agent in agents:
        agent.meet(case.links[agent.name])
        agent.measure(*case.data[agent.name])
    transport, n_measurements = Faults().open(case.data, case.links), len(case.pooled[1])
    n_steps, is_done = 0, False
    while not is_done and n_steps < STEPS:
        exchange(agents, transport, steps=1)
        n_steps += 1
        consensus = [agent for agent in agents if isinstance(agent, PushSum)]
        is_settled = [agent.is_settled and round(sum(agent.reached.values())) == n_measurements for agent in consensus]
        is_done = all(is_settled) if consensus else all(agent.is_finished for agent in agents)
    return [agent.belief.posterior(case.places) for agent in agents], transport.traffic.bytes, n_steps


METHODS: dict[str, Method] = {
    "pooled, exact": lambda case: ([case.exactly(*case.pooled)], 0, 0),
    "pooled, random features": lambda case: ([case.by_features(case.information(*case.pooled))], 0, 0),
    "alone": lambda case: ([case.exactly(X, y) for X, y in case.data.values()], 0, 0),
    "flooding of measurements": partial(by_messages, MeasurementFlooding),
    "consensus": partial(by_messages, PushSum),
    "robust committee": partial(by_messages, CommitteeFlooding),
    "covariance intersection": partial(by_messages, CovarianceIntersection),
    "adding up (wrong)": adding_up,
}


def synthetic(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and outcomes of a field drawn from a Matérn-5/2 prior, with noise of a tenth of its variance."""
    rng = stream(seed, "synthetic field")
    X = rng.random((SYNTHETIC, 2))
    f = draw(rng, "matern52", np.array([0.25, 0.25]), 1.0, n_features=4096)
    return X, f(X) + np.sqrt(0.1) * rng.standard_normal(len(X))


def survey(path: Path, x: str, y: str, value: str, is_log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points and outcomes of a CSV; rows without a value are left out."""
    read = read_measurements(CsvColumns(csv=str(path), x=x, y=y, value=value), "$")
    return read.places, np.log(read.values) if is_log else read.values


def cases(X: np.ndarray, y: np.ndarray, n_features: int, seed: int) -> list[tuple[Case, np.ndarray]]:
    """The folds, with the outcomes held out. A sensor has the measurements nearest to its position."""
    rng, domain = stream(seed, "folds"), Domain(X.min(axis=0), X.max(axis=0))
    U, names = domain.to_unit(X), [f"s{k:02d}" for k in range(AGENTS)]
    seats = U[rng.choice(len(U), AGENTS, replace=False)]
    nearest = ((U[:, None] - seats) ** 2).sum(axis=2).argmin(axis=1)
    distance = np.linalg.norm(seats[:, None] - seats, axis=2)
    links = nx.empty_graph(names)
    for i, j in sorted(np.argwhere(np.triu(np.ones_like(distance), 1)).tolist(), key=lambda pair: distance[*pair]):
        if nx.is_connected(links):  # the shortest links that connect all sensors
            break
        links.add_edge(names[i], names[j])
    folds = np.array_split(rng.permutation(len(X)), FOLDS)
    made: list[tuple[Case, np.ndarray]] = []
    for k, out in enumerate(folds):
        kept = np.setdiff1d(np.arange(len(X)), out)
        belief = ExactGP.create(ExactGPSettings(), domain).update(X[kept], y[kept]).fit(stream(seed, "fit", fold=k))
        proposal = Proposal(0, "", belief.hyperparameters, seed, n_features)
        data = {name: (X[rows], y[rows]) for a, name in enumerate(names) for rows in [kept[nearest[kept] == a]]}
        made.append((Case(data, links, domain, proposal, X[out]), y[out]))
    return made


def row(name: str, method: Method, folds: list[tuple[Case, np.ndarray]]) -> list[str]:
    """One row of the table: means over folds and sensors."""
    errors, scores, covered, sizes, steps = [], [], [], [], []
    for case, held_out in folds:
        predictions, n_bytes, n_steps = method(case)
        h = case.proposal.hyperparameters
        for mean, var in predictions:
            spread = var + h.noise_variance * h.scale**2  # variance of a measurement
            errors.append((held_out - mean) ** 2)
            scores.append(0.5 * np.log(2.0 * np.pi * spread) + 0.5 * (held_out - mean) ** 2 / spread)
            covered.append(np.abs(held_out - mean) <= 1.96 * np.sqrt(spread))
        sizes.append(n_bytes)
        steps.append(n_steps)
    rmse, nlpd = np.sqrt(np.mean(np.concatenate(errors))), np.mean(np.concatenate(scores))
    share = f"{100.0 * np.mean(np.concatenate(covered)):.1f} %"
    return [name, f"{rmse:.3g}", f"{nlpd:.3f}", share, f"{np.mean(sizes) / 1e3:,.1f}", f"{np.mean(steps):.0f}"]


def main() -> list[str]:
    """The table of one field."""
    parser = parser_of(__doc__)
    parser.add_argument("--csv", type=Path, help="a survey with a header; default: a field drawn from a prior")
    for column in ("--x", "--y", "--value"):
        parser.add_argument(column, help="name of a column")
    parser.add_argument("--log", action="store_true", help="take the logarithm of the values")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    X, y = survey(given.csv, given.x, given.y, given.value, given.log) if given.csv else synthetic(given.seed)
    folds = cases(X, y, given.features, given.seed)
    rows = (row(name, method, folds) for name, method in METHODS.items())
    return markdown(["method", "RMSE", "NLPD", "in 95 %", "kB in all", "steps"], rows)


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        say(main())

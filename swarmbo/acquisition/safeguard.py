"""An agreed batch held against the one that the agents would have chosen one after the other.

A local function sees B neighbours, and max-sum is no optimum where there are loops. So agents look again, along the
chain, at what all of them have agreed on: those who pay decline what is no longer worth its price, and a chain goes
back to the batch chosen in turn where that is worth more.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.local_worth import LocalWorth
from swarmbo.belief import PlaceBelief
from swarmbo.records import Traffic
from swarmbo.transport import Routes, multicast_traffic

_NUMBER = 8  # bytes
_SUMS = 6  # what a chain is worth by three measures, of two batches

Batch = dict[str, Float[np.ndarray, " d"]]


@dataclass(frozen=True)
class _Sight:
    """What of the others an agent takes into account.

    Args:
        order: How many agents ahead in the chain, whether they measure or not; None: all.
        to_the_letter: Whether they measure with the noise that Psi is scaled by, rather than with their sensors'.
    """

    order: int | None
    to_the_letter: bool = False


@dataclass(frozen=True)
class Safeguard:
    """What it takes to look again at a batch.

    Args:
        chains: The agents that take part, in the order of their chains.
        order: Markov order B of the agreement.
        beliefs: What each agent believes, in the order in which they choose.
        worths: What a place is good for, as each agent has it.
        prices: What a measurement costs those who may decline.
        in_turn: The places (d,) that the agents would choose one after the other, without those who would decline;
            None: they can't be compared, because not the same agents would measure.
        shared: Whether all have one belief, so that everybody can work out by itself what all would choose in turn.
    """

    chains: tuple[tuple[str, ...], ...]
    order: int
    beliefs: Mapping[str, PlaceBelief]
    worths: Mapping[str, LocalWorth]
    prices: Mapping[str, float]
    in_turn: Mapping[str, Float[np.ndarray, " d"]] | None
    shared: bool

    def settle(self, points: Mapping[str, Float[np.ndarray, " d"]]) -> Batch:
        """The batch that is carried out, chain by chain.

        From the end of a chain on, agents that pay and whose places are not worth their price, given what all agents
        later in the chain take, decline. Then the places chosen in turn are taken instead if those are worth more by
        the objective of the agreement, eq. (5). In a chain in which not everybody sees everybody they are also taken
        if they are worth more once each agent takes all those ahead into account, or by eq. (5) to the letter, which
        has neighbours measure with the noise that Psi is scaled by.

        Args:
            points: The places (d,) agreed on, of those who do not decline; no place twice.
        """
        settled: Batch = {}
        for chain in self.chains:
            agreed = self._worth_their_price(chain, points)
            rival = agreed if self.in_turn is None else _of(chain, self.in_turn)
            settled |= agreed if self._is_no_worse(chain, agreed, rival) else rival
        return settled

    def value(self, points: Mapping[str, Float[np.ndarray, " d"]]) -> float:
        """What a batch is worth: the sum of all local acquisitions (Daxberger & Low 2017, eq. (5)).

        Args:
            points: The places (d,) of those who measure.
        """
        return sum(self._value(chain, _of(chain, points), _Sight(self.order)) for chain in self.chains)

    def traffic(self, routes: Routes, n_dims: int) -> Traffic:
        """What it takes, passed on from agent to agent.

        Agents with beliefs of their own choose in turn: each hands on the choices so far, and all of them come back the
        same way. Then what each does is handed on from the end of its chain, with sums, and a verdict comes back.

        Args:
            routes: Who reaches whom; where no relay does, a base station passes choices on.
            n_dims: Coordinates of a place.
        """
        place, traffic, agents = _NUMBER * n_dims, Traffic(), () if self.shared else tuple(self.beliefs)
        for n, (agent, following) in enumerate(itertools.pairwise(agents), start=1):
            traffic += multicast_traffic(routes, agent, [following], n * place)
            traffic += multicast_traffic(routes, following, [agent], len(agents) * place)
        for chain in self.chains:
            for n, (following, agent) in enumerate(itertools.pairwise(reversed(chain)), start=1):
                traffic += multicast_traffic(routes, following, [agent], n * place + _SUMS * _NUMBER)
                traffic += multicast_traffic(routes, agent, [following], 1)
        return traffic

    def _worth_their_price(self, chain: Sequence[str], points: Mapping[str, Float[np.ndarray, " d"]]) -> Batch:
        stay: Batch = {}
        for agent in reversed(chain):
            if agent in points:
                worth = self._terms([agent], {agent: points[agent], **stay}, [list(stay)], _Sight(None))[0]
                if agent not in self.prices or worth > self.worths[agent].idle:
                    stay = {agent: points[agent], **stay}
        return stay

    def _is_no_worse(self, chain: Sequence[str], agreed: Batch, rival: Batch) -> bool:
        unpaid = [agent for agent in chain if agent not in self.prices]
        if any(agent in rival and agent not in agreed for agent in unpaid):
            return False  # max-sum on loops may end in a clash, and then somebody is left without a place
        sights = [_Sight(self.order)]
        if len(chain) > self.order + 1:
            sights += [_Sight(None), _Sight(self.order, to_the_letter=True)]
        return all(self._value(chain, agreed, sight) >= self._value(chain, rival, sight) for sight in sights)

    def _value(self, chain: Sequence[str], batch: Batch, sight: _Sight) -> float:
        ahead = [[b for b in chain[n + 1 :][: sight.order] if b in batch] for n in range(len(chain))]
        measure = [n for n, agent in enumerate(chain) if agent in batch]
        terms = self._terms([chain[n] for n in measure], batch, [ahead[n] for n in measure], sight)
        return sum(terms) + sum(self.worths[agent].idle for agent in chain if agent not in batch)

    def _terms(self, agents: Sequence[str], batch: Batch, told: Sequence[Sequence[str]], sight: _Sight) -> list[float]:
        """Local acquisitions of agents that measure, each given what some others do."""
        if not agents:
            return []
        X, row = np.array(list(batch.values())), {agent: n for n, agent in enumerate(batch)}
        everything = np.arange(len(X))
        moments: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        terms: list[float] = []
        for agent, others in zip(agents, told, strict=True):
            belief, worth = self.beliefs[agent], self.worths[agent]
            if id(belief) not in moments:
                cache = belief.posterior_cache(X)
                moments[id(belief)] = cache.mean, cache.cov(everything, everything)
            mean, cov = moments[id(belief)]
            own, given = row[agent], [row[other] for other in others]
            noise = worth.noise_variance if sight.to_the_letter else worth.told_noise
            K = cov[np.ix_(given, given)] + noise * np.eye(len(given))
            var = cov[own, own] - cov[own, given] @ np.linalg.solve(K, cov[given, own])
            merit = float(worth.merit(mean[[own]])[0])
            terms.append(merit + float(worth.gain(var)) - self.prices.get(agent, 0.0))
        return terms


def _of(chain: Sequence[str], points: Mapping[str, Float[np.ndarray, " d"]]) -> Batch:
    return {agent: points[agent] for agent in chain if agent in points}

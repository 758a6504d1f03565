"""Set partitions and the split-merge proposal: counts, normalisation, the way back."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief.model.partitions import (
    Proposal,
    averaged,
    canonical,
    log_acceptance,
    log_probability,
    propose,
    sample_partitions,
)

from .conftest import all_partitions

CAPS = [None, 1, 2, 3]


class Scripted:
    """In place of a generator: takes the choices it is told to, and multiplies up their probability."""

    def __init__(self, choices) -> None:
        self.choices, self.taken, self.probability = choices, 0, 1.0

    def _choice(self, n) -> int:
        if self.taken == len(self.choices):
            raise LookupError(n)
        self.taken, self.probability = self.taken + 1, self.probability / n
        return self.choices[self.taken - 1]

    def random(self) -> float:
        return (0.25, 0.75)[self._choice(2)]

    def integers(self, n, size=None):
        if size is None:
            return self._choice(n)
        number = 1 + self._choice(n**size - 1)  # all zeros would be drawn again, so all others come alike
        return np.array([number >> bit & 1 for bit in range(size)])


def proposed_from(partition, largest) -> dict:
    """Every proposal and its probability, by following all branches that ``propose`` may take."""
    found, scripts = dict[tuple, float](), [()]
    while scripts:
        choices = scripts.pop()
        rng = Scripted(choices)
        try:
            proposal = propose(partition, rng, largest)
        except LookupError as more:
            scripts += [(*choices, choice) for choice in range(more.args[0])]
        else:
            new = partition if proposal is None else proposal.partition
            if proposal is not None:
                assert proposal.log_forward == log_probability(partition, new, largest)
                assert proposal.log_back == log_probability(new, partition, largest)
            found[new] = found.get(new, 0.0) + rng.probability
    return found


@pytest.mark.parametrize("largest", [*CAPS, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_every_branch_of_the_proposal_has_the_probability_that_is_said_and_can_be_undone(n, largest) -> None:
    space = list(all_partitions(n, largest))
    for old in space:
        found = proposed_from(old, largest)
        for new in space:
            said, back = log_probability(old, new, largest), log_probability(new, old, largest)
            assert math.exp(said) == pytest.approx(found.get(new, 0.0) if new != old else 0.0, abs=1e-12)
            assert (said > -math.inf) == (back > -math.inf)


def test_probabilities_by_hand() -> None:
    whole, halves, singles = ((0, 1, 2),), ((0, 1), (2,)), ((0,), (1,), (2,))
    assert math.exp(log_probability(whole, halves)) == pytest.approx(1 / 3)  # a split is forced; three cuts
    assert math.exp(log_probability(halves, whole)) == pytest.approx(1 / 2)  # one pair, even odds
    assert math.exp(log_probability(halves, singles)) == pytest.approx(1 / 2)
    assert math.exp(log_probability(singles, halves)) == pytest.approx(1 / 3)  # a merge is forced; three pairs
    assert math.exp(log_probability(halves, singles, 2)) == 1.0  # a cap of two leaves nothing to merge
    assert log_probability(whole, singles) == -math.inf  # two moves away
    assert log_probability(halves, ((0, 2), (1,))) == -math.inf


def test_where_there_is_no_move_none_is_proposed_and_the_chain_stays() -> None:
    rng, singles = np.random.default_rng(0), ((0,), (1,))
    assert propose(((0,),), rng) is None
    assert propose(singles, rng, largest=1) is None
    assert sample_partitions(singles, lambda p: 0.0, rng, 3, largest=1) == [singles] * 3


def transitions(space, weights, largest):
    """The chain's matrix of transitions, from its proposal and its acceptance."""
    P = np.zeros((len(space), len(space)))
    for i, old in enumerate(space):
        for j, new in enumerate(space):
            forward, back = log_probability(old, new, largest), log_probability(new, old, largest)
            if forward > -math.inf:
                accepted = log_acceptance(weights[i], weights[j], Proposal(new, forward, back))
                P[i, j] = math.exp(forward + accepted)
        P[i, i] += 1.0 - P[i].sum()
    return P


@given(st.integers(2, 5), st.sampled_from([None, 2, 3]), st.integers(0, 2**32 - 1), st.floats(0.0, 8.0))
def test_detailed_balance_holds_for_any_weights(n, largest, seed, spread) -> None:
    space = list(all_partitions(n, largest))
    weights = spread * np.random.default_rng(seed).normal(size=len(space))
    P, share = transitions(space, weights, largest), np.exp(weights - weights.max())
    share /= share.sum()
    flow = share[:, None] * P
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    np.testing.assert_allclose(share @ P, share, atol=1e-13)
    anywhere = np.linalg.matrix_power((P > 0.0) | np.eye(len(space), dtype=bool), len(space))
    assert anywhere.all()  # from everywhere to everywhere


def test_a_chain_repeats_with_its_stream_and_goes_on_from_its_last_state() -> None:
    def weight(partition) -> float:
        return float(len(partition))

    start = (tuple(range(6)),)
    whole = sample_partitions(start, weight, np.random.default_rng(3), 30, moves=2)
    assert whole == sample_partitions(start, weight, np.random.default_rng(3), 30, moves=2)
    rng = np.random.default_rng(3)
    first = sample_partitions(start, weight, rng, 10, moves=2)
    assert first + sample_partitions(first[-1], weight, rng, 20, moves=2) == whole


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_cap_is_kept_and_blocks_stay_a_partition(n, largest, moves, seed) -> None:
    rng = np.random.default_rng(seed)
    start = tuple((i,) for i in range(n))
    for state in sample_partitions(start, lambda p: 0.0, rng, 3, moves=moves, largest=largest):
        assert max(map(len, state)) <= largest
        assert state == canonical(state)
        assert sorted(element for block in state for element in block) == list(range(n))


def test_equal_scopes_are_merged_and_shares_are_averages() -> None:
    samples = [((0, 1), (2,)), ((0, 1), (2,)), ((0, 1, 2),), ((0,), (1,), (2,))]
    scopes, shares = averaged(samples)
    assert scopes == ((0,), (0, 1), (0, 1, 2), (1,), (2,))
    np.testing.assert_allclose(shares, [1 / 12, 1 / 4, 1 / 4, 1 / 12, 1 / 4 + 1 / 12])
    assert sum(shares) == pytest.approx(1.0)
    assert averaged([((0,), (1,))]) == (((0,), (1,)), (0.5, 0.5))

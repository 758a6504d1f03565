"""Whose turn it is among models of similar evidence."""

from itertools import repeat

import pytest

from swarmbo.belief.model.candidates import Alternation


def turns(calls, turn=None):
    """Candidates in use, of three, after calls (evaluations, whether a fit is due, whether points are pending)."""
    turn, used = turn or Alternation(), []
    for n_data, is_fit_due, has_pending in calls:
        turn = turn.next(3, n_data, is_fit_due=is_fit_due, has_pending=has_pending)
        used.append(turn.in_use)
    return used


def test_without_pending_points_candidates_alternate_from_fit_to_fit() -> None:
    assert turns((n, n % 2 == 0, False) for n in range(4, 12)) == [1, 1, 2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize("is_fit_due", [False, True])
def test_in_a_batch_they_alternate_from_query_to_query(is_fit_due: bool) -> None:
    first = [(5, is_fit_due, False)]
    later = list(repeat((5, False, True), 4))
    assert turns(first + later) == [(is_fit_due + i) % 3 for i in range(5)]


def test_without_pending_points_the_model_is_that_of_the_first_query_of_this_history() -> None:
    batch = [(5, True, False), (5, False, True), (5, False, True)]
    assert turns([*batch, (5, False, False), (5, False, True)]) == [1, 2, 0, 1, 2]


def test_a_batch_begins_with_the_model_that_the_last_one_ended_with() -> None:
    assert turns([(5, False, False), (5, False, True), (6, False, False), (6, False, True)]) == [0, 1, 1, 2]


def test_a_fit_that_is_due_while_points_are_pending_begins_the_turns_of_this_history() -> None:
    assert turns([(5, True, True), (5, False, True), (5, False, False)]) == [1, 2, 1]

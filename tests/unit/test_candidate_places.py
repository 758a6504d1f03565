import numpy as np
import pytest

import swarmbo as sb
from swarmbo.deciding.offers import checked_candidates, places_to_recommend, random_candidates
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

BOX = Domain(np.array([0.0, 10.0]), np.array([1.0, 30.0]))
FAR = Domain(np.array([5.0, 5.0]), np.array([6.0, 6.0]))


def test_random_candidates_lie_in_each_agents_own_box_and_depend_on_nobody_else():
    both = random_candidates({"a": BOX, "b": FAR}, seed=1, round_number=2)
    for agent, box in {"a": BOX, "b": FAR}.items():
        assert both[agent].shape == (512, 2)
        assert (both[agent] >= box.low).all()
        assert (both[agent] <= box.high).all()
    assert np.array_equal(both["b"], random_candidates({"b": FAR}, seed=1, round_number=2)["b"])
    assert not np.array_equal(both["b"], random_candidates({"b": FAR}, seed=1, round_number=3)["b"])


def test_an_agent_without_candidates_has_none_and_wrong_shapes_are_refused():
    assert [checked_candidates("a", places, BOX).shape for places in ([[1.0, 2.0]], [])] == [(1, 2), (0, 2)]
    for wrong in ([[1.0, 2.0, 3.0]], [1.0, 2.0], [[np.inf, 0.0]]):
        with pytest.raises(ShapeError, match="candidates of 'a'"):
            checked_candidates("a", wrong, BOX)


def test_measured_places_are_recommended_only_inside_the_box():
    places = places_to_recommend(BOX, np.array([[0.5, 20.0], [0.5, 9.0]]), seed=0)
    assert places.shape == (2049, 2)
    assert places[-1].tolist() == [0.5, 20.0]
    assert (places >= BOX.low).all()
    assert (places <= BOX.high).all()


def test_a_team_sends_only_agents_with_candidates():
    team = sb.Team.for_field(["a", "b"], low=BOX.low.tolist(), high=BOX.high.tolist(), seed=1)
    query = team.ask({"a": [[0.5, 20.0]]})
    assert {agent: place.tolist() for agent, place in query.points.items()} == {"a": [0.5, 20.0]}

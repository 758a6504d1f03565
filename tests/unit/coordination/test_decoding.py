"""From messages to a joint choice."""

import numpy as np

from swarmbo.coordination.central import Central
from swarmbo.coordination.decoding import best_value, conditioned_message, decode
from swarmbo.coordination.part import LocalView, Part
from swarmbo.coordination.requests import Compare
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes


def test_the_order_is_breadth_first_from_the_first_variable_of_each_part() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b", "c"], "g": ["c", "d"], "h": ["b", "e"], "i": ["p", "q"]})
    assert Part(graph, 0, Routes(graph.agents)).order == ("a", "b", "c", "e", "d", "p", "q")


def test_a_conditioned_message_maximises_over_the_undecided_with_what_they_said() -> None:
    rng = np.random.default_rng(0)
    table, said = rng.normal(size=(2, 3, 4, 5)), {("f", "b"): rng.normal(size=3), ("f", "d"): rng.normal(size=5)}
    got = conditioned_message(table, ("a", "b", "c", "d"), "c", {"a": 1, "z": 0}, said, "f")
    expected = (table[1] + said["f", "b"][:, None, None] + said["f", "d"]).max(axis=(0, 2))
    assert np.allclose(got, expected, atol=1e-12)


def test_with_all_others_decided_it_is_a_line_of_the_table() -> None:
    table = np.arange(24.0).reshape(2, 3, 4)
    assert conditioned_message(table, ("a", "b", "c"), "b", {"a": 1, "c": 2}, {}, "f").tolist() == [14.0, 18.0, 22.0]


def test_two_optima_are_not_mixed() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"]})
    message = {("f", "a"): np.zeros(2), ("f", "b"): np.zeros(2)}  # both values of both look equally good
    apart = np.array([[0.0, 1.0], [1.0, 0.0]])
    part = Part(graph, 0, Routes(graph.agents))
    assert Central(part).run(decode(LocalView.of(part), {"f": apart}, message, message)) == {"a": 0, "b": 1}


def test_of_equally_good_choices_the_first_is_kept() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b"]})
    part, equal = Part(graph, 0, Routes(graph.agents)), [np.array([1.0, 2.0]), np.array([2.0, 1.0])]
    verdict, best = Compare(equal, None).judged(part)
    assert verdict.best == 1
    assert Compare(equal, best).judged(part)[0].best == 0
    assert Compare([*equal, np.array([2.0, 2.0])], best).judged(part)[0].best == 3


def test_forbidden_choices_are_repaired_once_and_better_ones_improved_from_then_on() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b"]})
    part, tried = Part(graph, 0, Routes(graph.agents)), set[bytes]()
    broken, allowed = [np.array([-np.inf, 9.0])], [np.array([1.0, 2.0])]
    assert Compare(allowed, None, tried=tried).judged(part)[0].stop is True  # as long as nothing was forbidden
    assert Compare(broken, None).judged(part)[0].stop is True  # nobody is to repair it
    verdict, best = Compare(broken, None, tried=tried).judged(part)
    assert (verdict.best, verdict.stop) == (1, None)
    assert Compare(broken, best, tried=tried).judged(part)[0].stop is True
    verdict, best = Compare(allowed, best, tried=tried).judged(part)
    assert (verdict.best, verdict.stop) == (1, None)
    again, _ = Compare(allowed, best, moved=True, tried=tried).judged(part)
    assert (again.best, again.stop) == (0, False)


def test_of_equal_sums_the_lowest_index_is_taken() -> None:
    assert best_value([np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0])]) == 1
    assert best_value([np.array([-np.inf, -np.inf])]) == 0

"""Parameters of other libraries as variables of a box: every value has its place there, and comes back."""

import math

import numpy as np
from hypothesis import given, settings, strategies as st

from swarmbo.integrations.codec import Choice, Codec, Number, key_of


@st.composite
def numbers(draw):
    if draw(st.booleans()):
        low = draw(st.integers(1, 50))
        is_log = draw(st.booleans())
        step = 1 if is_log else draw(st.integers(1, 5))
        return Number(low, low + step * draw(st.integers(1, 40)), step, is_log, True)
    step = draw(st.none() | st.sampled_from([0.1, 0.25, 1.0]))
    low = draw(st.floats(-5.0, 5.0))
    if step is not None:
        return Number(low, low + step * draw(st.integers(1, 40)), step)
    if draw(st.booleans()):
        return Number(10.0**low, 10.0 ** (low + draw(st.floats(0.1, 5.0))), None, True)
    return Number(low, low + draw(st.floats(0.1, 10.0)))


@given(numbers(), st.floats(0.0, 1.0))
@settings(max_examples=100, deadline=None)
def test_any_place_in_the_box_is_a_value_and_its_own_place_decodes_to_it(number, share):
    ((low, high),) = number.bounds
    value = number.decode([low + share * (high - low)])
    assert number.low <= value <= number.high
    assert type(value) is (int if number.is_whole else float)
    (place,) = number.encode(value)
    assert low <= place <= high
    if number.step is None:
        assert math.isclose(number.decode([place]), value, rel_tol=1e-12, abs_tol=1e-12)
    else:
        assert number.decode([place]) == value
        steps = (value - number.low) / number.step
        assert math.isclose(steps, round(steps), abs_tol=1e-6)
        near = list(number.values_near(value))
        assert value not in near
        assert len(set(near)) == len(near) == number.n_values - 1


def test_values_with_steps_have_equal_parts_of_the_box():
    for number in (Number(0, 9, 1, is_whole=True), Number(-1.0, 1.0, 0.5), Number(3, 9, 2, is_whole=True)):
        ((low, high),) = number.bounds
        grid = low + (np.arange(12_000) + 0.5) / 12_000 * (high - low)
        _, counts = np.unique([number.decode([place]) for place in grid], return_counts=True)
        assert len(counts) == number.n_values
        assert counts.max() - counts.min() <= 1


def test_choices_are_told_apart_by_value_and_type():
    choice = Choice((1, True, "1", None, 1.0, math.nan))
    for number, thing in enumerate(choice.choices):
        assert choice.encode(thing) == [float(number == k) for k in range(6)]
        assert choice.decode(choice.encode(thing)) is thing
    assert choice.encode(2) is None
    assert len(list(choice.values_near("1"))) == 5


def test_what_is_out_of_range_or_missing_has_no_place():
    codec = Codec({"x": Number(0.0, 1.0), "n": Number(1, 3, 1, is_whole=True)})
    assert codec.encode({"x": 0.5, "n": 2}) == {"x": 0.5, "n": 2.0}
    for values in ({"x": 1.5, "n": 2}, {"x": 0.5}, {"x": "0.5", "n": 2}, {"x": math.nan, "n": 2}):
        assert codec.encode(values) is None


def test_what_was_tried_is_left_for_a_neighbour_and_then_for_any():
    codec = Codec({"n": Number(0, 2, 1, is_whole=True), "k": Choice(("a", "b"))})
    seen, start = set(), {"n": 1, "k": "a"}
    for count in range(6):
        found = codec.unseen(dict(start), seen, seed=0)
        assert key_of(found) not in seen
        changed = sum(found[name] != start[name] for name in start)
        assert changed <= (0 if count == 0 else 1 if count < 4 else 2)
        seen.add(key_of(found))
    assert codec.unseen(dict(start), seen, seed=0) == start
    assert Codec({"x": Number(0.0, 1.0)}).unseen({"x": 0.5}, {key_of({"x": 0.5})}, seed=0) == {"x": 0.5}

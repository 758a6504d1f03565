"""Evaluations can be attached by name: a table gives the same data as arrays in the team's order."""

import pathlib
import tempfile
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.belief import view_of
from swarmbo.errors import ConfigError, DataWarning, ShapeError

from .teams import CHAIN, CUBE

X = np.random.default_rng(0).random((6, 3))
F = np.column_stack([np.sin(3 * X[:, 0]) * X[:, 1], -((X[:, 1] - X[:, 2]) ** 2)])
PLACES, VALUES = X[:, :2], F[:, 0]


def joint(outcomes="total", **more):
    return sb.Team(CHAIN, CUBE, outcomes=outcomes, seed=1, initial=2, **more)


def field(belief="exact"):
    return sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], seed=1, belief=belief)


def as_dicts(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_csv(columns, tmp_path):
    rows = zip(*columns.values(), strict=True)
    lines = [", ".join(columns)]
    lines += [",".join("" if cell is None or cell != cell else str(cell) for cell in row) for row in rows]
    (tmp_path / "rows.csv").write_text("\ufeff" + "\r\n".join([*lines, "", " , "]), encoding="utf-8")
    return tmp_path / "rows.csv"


def forms(columns, tmp_path):
    """The same table in every accepted form."""
    yield as_dicts(columns)
    yield {name: np.asarray(column) for name, column in columns.items()}
    yield as_csv(columns, tmp_path)
    yield str(as_csv(columns, tmp_path))
    for library, make in (("pandas", "DataFrame"), ("pyarrow", "table"), ("polars", "DataFrame")):
        try:
            module = __import__(library)
        except ImportError:
            continue
        yield getattr(module, make)({name: list(column) for name, column in columns.items()})


def assert_same_history(table, reference, make, *arguments, **more):
    """Assert that attaching a table gives the history of the reference."""
    team = make()
    team.attach(table, *arguments, **more)
    for kept in ("X", "totals", "factors", "attached"):
        np.testing.assert_array_equal(getattr(team.history, kept), getattr(reference.history, kept), str(type(table)))
    assert team.failures == reference.failures
    return team


def test_a_table_of_totals_equals_arrays(tmp_path):
    reference = joint()
    reference.attach(X, F.sum(axis=1))
    columns = {"note": list("abcdef"), "z": X[:, 2], "x": X[:, 0], "total": F.sum(axis=1), "y": X[:, 1]}
    teams = [assert_same_history(table, reference, joint) for table in forms(columns, tmp_path)]
    assert len(teams) >= 4
    assert teams[0].ask() == reference.ask()
    named = as_dicts({**columns, "yield": columns["total"], "total": np.zeros(6)})
    assert_same_history(named, reference, joint, "yield")


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_a_table_of_factors_equals_arrays(outcomes, tmp_path):
    reference, told = joint(outcomes), F.copy()
    told[1, 0] = told[4] = np.nan  # row 1 lacks one outcome, row 4 both
    reference.attach(X, told)
    make = partial(joint, outcomes)
    for table in forms(dict(zip("xyzfg", [*X.T, *told.T], strict=True)), tmp_path):
        assert_same_history(table, reference, make)
    other = dict(zip("xyzuv", [*X.T, *told.T], strict=True))
    assert_same_history(other, reference, make, {"g": "v", "f": "u"})


def test_rows_of_single_factors_are_combined_to_points():
    reference = joint("per-factor")
    reference.attach(X, F)
    rows = [
        {"x": x, "y": y, "z": z, "factor": factor, "value": value}
        for (x, y, z), values in zip(X.tolist(), F.tolist(), strict=True)
        for factor, value in zip("fg", values, strict=True)
    ]
    team = assert_same_history(rows, reference, partial(joint, "per-factor"))
    team.attach([*rows, *rows])  # a point measured twice is two evaluations
    assert len(team.history) == 18


def test_a_table_of_measurements_in_a_field_names_their_agents(tmp_path):
    agents = list("abbaba")
    reference = field()
    reference.attach(PLACES, VALUES, agents=agents)
    columns = {"agent": agents, "x": PLACES[:, 0], "y": PLACES[:, 1], "value": VALUES}
    teams = [assert_same_history(table, reference, field) for table in forms(columns, tmp_path)]
    assert teams[0].ask() == reference.ask()
    assert np.isfinite(reference.history.factors).sum(axis=0).tolist() == [3, 3]
    for belief in ("exact", "fused"):
        by_first, by_b = field(belief), field(belief)
        by_first.attach(PLACES, VALUES)
        assert by_first.history.factors[:, 0].tolist() == VALUES.tolist()
        table = {"east": PLACES[:, 0], "north": PLACES[:, 1], "ph": VALUES}
        by_b.attach(table, "ph", columns=["east", "north"], agents="b")
        assert by_b.history.factors[:, 1].tolist() == VALUES.tolist()


def test_agents_with_local_beliefs_get_their_own_attached_measurements():
    team = field("fused")
    team.attach(PLACES, VALUES, agents=list("aaaabb"))
    known = [view_of(team.belief.views, agent).posterior(PLACES)[1] for agent in "ab"]
    assert max(known[0][:4]) < min(known[1][:4])
    assert max(known[1][4:]) < min(known[0][4:])


def test_rounds_may_be_a_column():
    team, reference = (joint(belief={"kind": "additive", "time": {}}) for _ in range(2))
    when = np.arange(-5.0, 1.0)
    reference.attach(X, F.sum(axis=1), rounds=when)
    team.attach({**dict(zip("xyz", X.T, strict=True)), "total": F.sum(axis=1), "day": when}, rounds="day")
    assert team.history.rounds.tolist() == reference.history.rounds.tolist() == when.tolist()
    with pytest.raises(ShapeError, match="without a time axis; wanted none, or a belief with `time`"):
        joint().attach(X, F.sum(axis=1), rounds=when)
    with pytest.raises(
        ShapeError, match=r"locations \(6, 3\) and 6 .*; wanted \(6, 2\), or \(6, 3\) for a belief with"
    ):
        field().attach(X, VALUES)


class OwnBelief:
    """A user's belief about a function, which accepts rounds without a time axis."""

    def learn(self, situation, acquisition, previous):
        return acquisition.learn(situation, sb.AdditiveGPSettings(), previous)


def test_rounds_may_be_given_to_a_users_belief():
    team = joint(belief=OwnBelief())
    team.attach(X, F.sum(axis=1), rounds=np.arange(-5.0, 1.0))
    assert team.history.rounds.tolist() == [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "3,5"}, r"row 2, column 'x': got '3,5'; wanted a number"),
        ({"x": None}, r"row 2, column 'x': got None; wanted a number between 0 and 1"),
        ({"y": 7.0}, r"row 2, column 'y': got 7\.0; wanted a number between 0 and 1"),
        ({"total": "good"}, r"row 2, column 'total': got 'good'"),
        ({"total": True}, r"row 2, column 'total': got True"),
        ({"total": [1.0]}, r"row 2, column 'total': got \[1\.0\]"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(change, message):
    rows = as_dicts(dict(zip(["x", "y", "z", "total"], [*X.T.tolist(), VALUES.tolist()], strict=True)))
    rows[2] |= change
    team = joint()
    with pytest.raises(ConfigError, match=message):
        team.attach(rows)
    assert len(team.history) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y,value,agent\n0.1,0.2,1.0,a\n\n0.3,oops,2.0,b\n", r"line 4, column 'y': got 'oops'; wanted a number"),
        ("x,y,value\n0.1,٠.٢,1.0\n", r"line 2, column 'y': got '٠.٢'; wanted a number in the digits 0 to 9"),
        ("x,y,value\n0.1,0.2,1_000\n", r"line 2, column 'value': got '1_000'; wanted a number"),
        ("x,y,value,agent\n0.1,0.2,1.0,c\n", r"line 2, column 'agent': got 'c'; wanted one of \['a', 'b'\]"),
        ("x;y;value\n0,1;0,2;1,0\n", r"columns are separated by ';'; wanted .* commas"),
        ('"x";"y";"value"\n0,1;0,2;1,0\n', r"columns are separated by ';'; wanted .* commas"),
        ("x,y,value\n0.1,0.2,1.0,9\n", r"line 2 has 4 cells, and the header 3; wanted .* points in numbers"),
        ("x,x,value\n", r"it has the column 'x' twice"),
        (b"x,y,value\n\xff,1,1\n", r"': 'utf-8' .*wanted a CSV file in UTF-8"),
    ],
)
def test_an_error_in_a_file_is_named_by_file_and_line_as_editors_count_them(tmp_path, text, message):
    path = tmp_path / "survey.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=rf"survey\.csv.*{message}"):
        field().attach(path)
    with pytest.raises(FileNotFoundError):
        field().attach(tmp_path / "none.csv")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('x,y,value,note\n0,0,1,ok\n0,1,2,"5 cm\n1,0,3,ok\n1,1,4,ok\n', 3),
        ('x,y,value,note\n0,0,1,ok\n0,1,2,"5 cm\n1,0,3,ok\n1,1,4,"7 cm\n', 3),
        ('x,y,value,note\n0,0,1,"a\nb"\n0,1,2,"5 cm\n1,0,3,ok\n1,1,4,7"\n', 4),
        ('x,note,y,value\n0,ok,0,1\n0,"5 cm,1,2\n1,7",0,3\n1,ok,1,4\n', 3),
        ('x,y,value,"note\n0,0,1,ok\n0,1,2,7"\n', 1),
    ],
)
def test_an_open_quote_is_refused_with_the_line_in_which_its_row_begins(tmp_path, text, line, newline):
    (tmp_path / "survey.csv").write_bytes(text.replace("\n", newline).encode())
    with pytest.raises(ConfigError, match=rf"survey\.csv': the row that begins in line {line} has .* quotes in pairs"):
        field().attach(tmp_path / "survey.csv")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_quoted_cells_may_have_line_breaks_doubled_quotes_and_surrounding_space(tmp_path, newline):
    text = '"x" , "y",value,note\n0,0,"1" ,"two\nlines, 0"\n0,"1" ,2,"a ""b"", 5"" c" \n1,0,3,5"\nno,1,4,"ok" \n'
    (tmp_path / "survey.csv").write_bytes(text.replace("\n", newline).encode())
    with pytest.raises(ConfigError, match=r"line 6, column 'x': got 'no'"):
        field().attach(tmp_path / "survey.csv")
    (tmp_path / "survey.csv").write_bytes(text.replace("no,", "1,").replace("\n", newline).encode())
    (team := field()).attach(tmp_path / "survey.csv")
    assert team.history.factors[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([{"x": 0.1, "Y": 0.2, "value": 1.0}],), r"no column 'y'; columns: x, Y, value"),
        (([{"x": 0.1, "y": 0.2}],), r"no column 'value'"),
        (([{"x": 0.1, "y": 0.2, "value": 1.0}, [1, 2, 3]],), r"\$\.points\[1\]: got \[1, 2, 3\]; wanted a dict"),
        (({"x": [0.1], "y": [0.1, 0.2], "value": [1.0]},), r"columns of different lengths"),
        (({"x": 0.1, "y": 0.2, "value": 1.0},), r"\$\.points: got 0\.1 as a column; wanted .* for one evaluation"),
        (({"x": [0.1, 0.2], "y": [0.1, 0.2], "value": [1.0, 2.0], "agent": "ab"},), r"got 'ab' as a column"),
        ((PLACES,), r"Wanted arrays of both, or a table"),
        ((PLACES, "value"), r"Wanted arrays of both, or a table"),
        (([{"x": 0.1, "y": 0.2, "value": 1.0}], None, ["x"]), r"wanted the names of 2 columns"),
        ((PLACES, VALUES, None, "c"), r"\$\.agents: got 'c'; wanted one of \['a', 'b'\]"),
        ((PLACES, VALUES, None, ["a"]), r"got 1 agents for 6 measurements"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    points, outcomes, columns, agents = (*arguments, None, None, None)[:4]
    with pytest.raises(ValueError, match=message):
        field().attach(points, outcomes, columns=columns, agents=agents)
    with pytest.raises(ConfigError, match=r"\$\.agents: got agents; wanted none"):
        joint().attach(X, VALUES, agents="a")


def test_an_unknown_choice_is_refused_even_if_none_is_a_choice():
    team = sb.Team(None, {"c": sb.Categorical([None, "a", 2]), "x": (0.0, 1.0)})
    team.attach([{"c": c, "x": 0.5, "total": 1.0} for c in (None, "", "a", "2", 2, "2.0")])
    assert team.history.X[:, 0].tolist() == [0, 0, 1, 2, 2, 2]
    with pytest.raises(ConfigError, match=r"row 1, column 'c': got 'b'; wanted one of \[None, 'a', 2\]"):
        team.attach([{"c": c, "x": 0.5, "total": 1.0} for c in ("a", "b")])


def test_numbers_that_mark_gaps_give_a_warning_and_count_as_failed():
    rows = {"x": PLACES[:, 0], "y": PLACES[:, 1], "value": [1.0, -9999.0, 2.0, 3.0, -9999.0, 2.5]}
    team = field()
    with pytest.warns(DataWarning, match=r"-9999 in 2 rows of 'value' is taken for no outcome"):
        team.attach(rows)
    assert (team.n_data, team.failures) == (4, 2)


def test_variables_may_have_names_of_outcome_columns():
    team = sb.Team(None, {"value": (0.0, 1.0), "factor": (0.0, 1.0)})
    team.attach([{"value": 0.1, "factor": 0.2, "total": 3.0}])
    assert team.history.X.tolist() == [[0.1, 0.2]]
    assert team.history.totals.tolist() == [3.0]
    with pytest.raises(ConfigError, match="no column of outcomes"):
        team.attach([{"value": 0.1, "factor": 0.2}])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(-1e6, 1e6) | st.none()), min_size=1, max_size=5))
def test_numbers_survive_a_round_trip_through_text(rows):
    team = field()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        columns = dict(zip(["x", "y", "value"], map(list, zip(*rows, strict=True)), strict=True))
        team.attach(as_csv(columns, pathlib.Path(folder)))
    assert team.history.X[:, :2].tolist() == [[x, y] for x, y, _ in rows]


@pytest.mark.parametrize("table", [{"x": [], "total": []}, "x,total\n"], ids=["columns", "csv"])
def test_a_table_without_rows_adds_nothing(table, tmp_path):
    if isinstance(table, str):
        (path := tmp_path / "past.csv").write_text(table)
        table = path
    team = sb.Team(None, {"x": (0.0, 1.0)})
    team.attach(table)
    assert (team.n_data, team.failures) == (0, 0)


@pytest.mark.parametrize("none", [[], (), np.array([])])
def test_empty_lists_add_nothing(none):
    typed = sb.Team(None, {"n": sb.Integer(0, 3), "x": (0.0, 1.0)})
    for team in (field(), joint(), joint("per-factor"), typed):
        team.attach(none, none)
        assert (team.n_data, team.failures) == (0, 0)


def test_a_column_is_any_iterable():
    team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0)
    team.attach({"x": {1: 0.1, 2: 0.3}.values(), "y": iter([0.2, 0.4]), "value": (1.0, 2.0)})
    np.testing.assert_array_equal(team.history.X, [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize(("closed", "told"), [("ok", "unexpected end of data"), ('"7 cm', "',' expected after")])
def test_a_table_with_an_unbalanced_quote_is_refused(tmp_path, closed, told):
    notes = ["ok", '"5 cm', "ok", closed, "ok"]
    rows = [f"{number},1,2.5,{note}" for number, note in enumerate(notes)]
    (tmp_path / "soil.csv").write_text("\n".join(["x,y,value,note", *rows, ""]))
    with pytest.raises(ConfigError, match=told):
        sb.Team.for_field(["a"], [0.0, 0.0], [20.0, 20.0]).attach(tmp_path / "soil.csv")

"""Displays of objects: one line of text, or a small table in a notebook."""

import pydoc
from html.parser import HTMLParser

import pytest

import swarmbo as sb
from swarmbo.boundary.values import html_table

MEAN = "<img src=x onerror=alert(1)>"


class Checked(HTMLParser):
    """Parser that collects texts, and refuses tags that are not closed in order or not part of a table."""

    def __init__(self, html):
        super().__init__()
        self.stack, self.texts, self.rows = [], [], []
        self.feed(html)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        assert tag in {"table", "caption", "thead", "tbody", "tr", "th", "td", "div"}, tag
        assert all(name in {"style", "scope"} for name, _ in attrs)
        if tag == "tr":
            self.rows.append([])
        self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.stack and self.stack[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_names_of_users_are_escaped_in_html():
    checked = Checked(html_table(MEAN, [(MEAN, 1)], header=(MEAN, "n")))
    assert checked.texts == [MEAN, MEAN, "n", MEAN, "1"]
    graph = sb.FactorGraph.from_scopes({MEAN: ["<b>", "&amp;"]})
    assert [MEAN, "<b>, &amp;", "<b>"] in Checked(graph._repr_html_()).rows
    team = sb.Team(graph, {"<b>": (0.0, 1.0), "&amp;": (0.0, 1.0)})
    team.tell(team.ask(), 2.0)
    label, best = Checked(team._repr_html_()).rows[-1]
    assert label == "best outcome"
    assert best.startswith("2 at <b> = ")


def test_the_display_of_a_team_has_its_kind_and_progress():
    team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], rounds=7, seed=5)
    first = team.ask()
    team.ask()
    team.tell(first, {"a": 1.25, "b": float("nan")})
    text = repr(team)
    assert text.startswith("<Team of 2 agents in a field with 2 coordinates: 1 measurement, 1 failed, 1 pending, ")
    for part in ("round 2 of 7", "belief exact", "acquisition db-gp-ucb", "seed 5", "1.25 at ("):
        assert part in text
    assert "\n" not in text
    assert ["round", "2 of 7"] in Checked(team._repr_html_()).rows
    joint = sb.Team(None, {"x": (0.0, 1.0)}, coordination="sobol")
    assert "1 agent for a function of 1 variable, unknown structure, totals: 0 evaluations" in repr(joint)
    assert "coordination sobol" in repr(joint)
    assert "best" not in joint._repr_html_()


def test_displaying_a_team_changes_nothing():
    team, other = (sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=2, initial=2) for _ in range(2))
    for number in range(4):
        for one in (team, other):
            one.tell(one.ask(), float(number))
        repr(team)
        team._repr_html_()
    assert team.ask() == other.ask()


@pytest.mark.parametrize("name", ["attach", "ask", "tell", "save", "load", "for_env", "recommend", "__init__"])
def test_help_of_a_team_can_be_read(name):
    text = pydoc.plain(pydoc.render_doc(getattr(sb.Team, name)))
    assert "numpy._typing" not in text
    assert "collections.abc.Mapping[str, collections" not in text


def test_large_graphs_problems_and_solutions_are_small_tables():
    graph = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}"] for n in range(1000)})
    checked = Checked(graph._repr_html_())
    assert len(checked.rows) == 21
    assert checked.rows[-1][:2] == ["…", "981 more factors"]
    bounds = {f"x{n}": (0.0, n + 1.0) for n in range(30)}
    checked = Checked(sb.Problem.of(None, bounds)._repr_html_())
    assert checked.rows[1] == ["x0", "0 to 1", "agent_0"]
    assert checked.rows[-1][1] == "11 more variables"
    graph = sb.FactorGraph.from_scopes({MEAN: ["x", "y"]})
    solution = sb.exact(graph, {MEAN: [[0.0, 1.0], [3.0, 2.0]]})
    checked = Checked(solution._repr_html_())
    assert checked.texts[0] == "Solution: exact"
    assert ["value", "3.0"] in checked.rows
    assert ["x", "value number 1"] in checked.rows
    report = Checked(solution.report._repr_html_()).rows
    assert ["value", "3.0"] in report
    assert all(row[0] != "forbidden by" for row in report)  # unknown entries are left out

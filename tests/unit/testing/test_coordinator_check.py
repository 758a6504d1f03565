"""Correct users' coordination methods pass the check. For each possible fault, it refuses them with a message."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.situation import Decision
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.records import Traffic
from swarmbo.testing.coordinator import Bowls

REPORT = sb.SolveReport("converged")


class Search:
    """A table method that tries every assignment."""

    def solve(self, graph, tables, links=None):
        sizes = {v: n for f in graph.factors for v, n in zip(graph.scope(f), tables[f].shape, strict=True)}
        every = [dict(zip(sizes, at, strict=True)) for at in itertools.product(*map(range, sizes.values()))]
        worth = [sum(tables[f][tuple(at[v] for v in graph.scope(f))] for f in graph.factors) for at in every]
        best = int(np.argmax(worth))
        values = {f: tables[f][tuple(every[best][v] for v in graph.scope(f))] for f in graph.factors}
        broken = tuple(f for f, value in values.items() if value == -np.inf)
        report = sb.SolveReport("infeasible", violated=broken) if broken else sb.SolveReport("exact", gap=0.0)
        return sb.Solution(every[best], worth[best], worth[best], report)


def solving(change, settings=Search):
    """A correct solution, changed by `change(solution, tables, links)`."""

    def solve(self, graph, tables, links=None):
        right = settings().solve(graph, tables, links)
        return change(right, tables, links) or right

    return {"solve": solve}


def with_solution(**wrong):
    return solving(lambda right, tables, links: msgspec.structs.replace(right, **wrong))


def with_report(**wrong):
    return solving(
        lambda right, tables, links: msgspec.structs.replace(
            right, report=msgspec.structs.replace(right.report, **wrong)
        )
    )


def second_best(report=REPORT, bound=None):
    """The second-best assignment with a given report and bound."""

    def solve(self, graph, tables, links=None):
        best = Search().solve(graph, tables).assignment
        factor = graph.factors[0]
        penalised = {name: table.copy() for name, table in tables.items()}
        penalised[factor][tuple(best[v] for v in graph.scope(factor))] -= 1e6
        choice = Search().solve(graph, penalised).assignment
        value = float(sum(tables[f][tuple(choice[v] for v in graph.scope(f))] for f in graph.factors))
        return sb.Solution(choice, value, value if bound == "its own" else None, report)

    return {"solve": solve}


def worst(self, graph, tables, links=None):
    found = Search().solve(graph, {name: -table for name, table in tables.items()})
    return sb.Solution(found.assignment, -found.value, None, REPORT)


def suboptimal(choose):
    """The second-best assignment if ``choose(links)``, otherwise the best."""
    worse = second_best()["solve"]
    return {
        "solve": lambda self, graph, tables, links=None: (worse if choose(links) else Search.solve)(self, graph, tables)
    }


def zeroed(right, tables, links):
    for table in tables.values():
        table[...] = 0.0


def unlinked(right, _, links):
    if links is not None:
        links.clear()
    return right


def one_more_message(made):
    return msgspec.structs.replace(made, traffic=made.traffic + Traffic(messages=1))


class Draw:
    """A box method that tries 500 random points."""

    def maximise(self, functions, links=None, seed=0):
        drawn = functions.low + np.random.default_rng(seed).random((500, len(functions.low))) * (
            functions.high - functions.low
        )
        points = np.vstack([functions.starts, drawn])
        worth = total_value(functions, points)
        return sb.Agreement(points[np.argmax(worth)], float(worth.max()), REPORT)


def maximising(change, settings=Draw):
    """A correct agreement, changed by `change(agreement, functions, links)`."""
    return {
        "maximise": lambda self, functions, links=None, seed=0: change(
            settings().maximise(functions, links, seed), functions, links
        )
    }


def at_point(choose):
    """An agreement on the point ``choose(functions, correct point)``, with its true value."""

    def change(right, functions, links):
        point = np.asarray(choose(functions, right.point), dtype=float)
        value = total_value(functions, point[None])[0] if point.shape == right.point.shape else 0.0
        return sb.Agreement(point, float(value), REPORT)

    return maximising(change)


def ask_unpublished(self, functions, links=None, seed=0):
    """Ask for numbers that neighbours do not publish."""
    stack = stacks_of(functions.graph)[0]
    functions.published(stack, stack.take(functions.low[None]), ())


class Uniform:
    """A policy that chooses random points."""

    def decide_joint(self, situation, acquisition):
        return np.random.default_rng([situation.seed, len(situation.history)]).random(situation.domain.n_dims), REPORT


def deciding(change):
    return {
        "decide_joint": lambda self, situation, acquisition: change(situation, *Uniform().decide_joint(situation, 0))
    }


def overwrite_history(situation, point, report):
    situation.history.totals.flags.writeable = True
    situation.history.totals[:] = 0.0
    return point, report


class First:
    """A planner that sends each agent to its first candidate."""

    def decide(self, situation, acquisition):
        return Decision({agent: situation.candidates[agent][0] for agent in situation.movers}, REPORT)


def with_places(change):
    """Correct places, changed by `change(situation, places)`."""

    def decide(self, situation, acquisition):
        points = First().decide(situation, acquisition).points
        return Decision(change(situation, points) or points, REPORT)

    return {"decide": decide}


def overwrite_candidates(situation, points):
    situation.candidates["a"][0] = 0.0


class Agents(sb.MaxSum, frozen=True, tag="max-sum-too"):
    """Max-sum as agents run it, for faults in `solve`."""


class Members(sb.ADMM, frozen=True, tag="admm-too"):
    """ADMM as agents run it, for faults in `maximise`."""


TURN = itertools.count()
BROKEN = {
    object: {"no method": ({}, "Broken: got no method to choose by; wanted one of solve, maximise, decide_jo")},
    Search: {
        "no solution": ({"solve": lambda *given: {}}, "dict: got no assignment, value, upper_bound, report; wanted"),
        "changes tables": (
            solving(zeroed),
            r"solve\(\) over a chain: the tables: got .*; wanted those that were given",
        ),
        "clears links": (solving(unlinked), "over a chain: links afterwards: got Graph with 0 nodes.*; wanted those"),
        "incomplete assignment": (
            with_solution(assignment={"x": 0}),
            r"the assignment: got {'x': 0}; wanted an index for each of {'x': 2, ",
        ),
        "index beyond the table": (
            with_solution(assignment=dict.fromkeys("xyzw", 9)),
            "the assignment: got {.*9.*}; wanted an index for each of .*, less than its size",
        ),
        "a wrong value": (with_solution(value=99.0), "the value 99: got a difference of .*; wanted .*, the sum at"),
        "the worst": ({"solve": worst}, "the sum at the assignment: got -.*; wanted at least the mean of all"),
        "not exact": (
            second_best(report=sb.SolveReport("exact")),
            "the sum of an 'exact' choice, .*: got a difference of .*; wanted the maximum, ",
        ),
        "unknown status": (
            with_report(status="optimal"),
            r"solve\(\) over a chain: the report: got .*; wanted a valid SolveReport: .*'optimal'",
        ),
        "a wrong value in the report": (with_report(value=99.0), "the value 99 in the report: got a difference of .*"),
        "a gap too small": (
            second_best(report=sb.SolveReport("converged", gap=0.0)),
            "the gap: got 0.0; wanted None, or at least ",
        ),
        "a bound too low": (second_best(bound="its own"), "the upper bound: got .*; wanted None, or at least "),
        "forbidden factors not reported": (
            with_report(violated=()),
            r"that forbids all: factors in report.violated: got .*; wanted those that are -inf at the choice, \['",
        ),
        "forbidden but exact": (
            with_report(status="exact"),
            "that forbids all: the status: got exact; wanted 'infeasible' for a forbidden choice only",
        ),
        "forbidden with a gap": (
            with_report(gap=0.0),
            "that forbids all: the gap of a forbidden choice: got 0.0; wanted None",
        ),
        "not deterministic": (
            suboptimal(lambda links: next(TURN) % 2),
            "the assignment when asked again: got .*; wanted the same",
        ),
        "different over links": (
            suboptimal(lambda links: links is not None),
            "the assignment over links that relay: got .*; wanted the same",
        ),
    },
    Agents: {
        "different from agents": (second_best(), "the choice of agents: got .*; wanted that of solve"),
        "wrong traffic": (
            solving(
                lambda right, tables, links: msgspec.structs.replace(right, report=one_more_message(right.report)),
                settings=sb.MaxSum,
            ),
            r"solve\(\) over a chain: the traffic: got Traffic.*; wanted that of agents, Traffic",
        ),
    },
    Draw: {
        "no agreement": ({"maximise": lambda *given: None}, "NoneType: got no point, value, report; wanted"),
        "no x": (at_point(lambda f, point: point[1:]), r"the shape of the point: got \(3,\); wanted \(4,\)"),
        "NaN": (at_point(lambda f, point: point * np.nan), r"the point: got \[nan, .*; wanted numbers from \[0.0, "),
        "outside": (
            at_point(lambda f, point: point + (f.high < 1.0)),
            r"the point: got \[1\..*; wanted .* to \[0.45, ",
        ),
        "wrong value": (
            maximising(lambda right, functions, links: replace(right, value=99.0)),
            r"maximise\(\) over a chain: the value 99: got .*; wanted .*, the sum at the point",
        ),
        "unknown status": (
            maximising(lambda right, functions, links: replace(right, report=sb.SolveReport("optimal"))),
            r"maximise\(\) over a chain: the report: got .*; wanted a valid SolveReport: .*'optimal'",
        ),
        "a gap too small": (
            maximising(lambda right, functions, links: replace(right, report=sb.SolveReport("converged", gap=-1.0))),
            "the gap: got -1.0; wanted None, or at least ",
        ),
        "clears links": (
            maximising(unlinked),
            "over a chain: links afterwards: got Graph with 0 nodes.*; wanted those",
        ),
        "changes starts": (
            maximising(lambda right, functions, links: functions.starts.fill(0.5) or right),
            "low, high and starts: got .*; wanted those that were given",
        ),
        "a corner": (
            at_point(lambda f, point: f.high),
            "the sum at the point: got -.*; wanted at least the mean of the",
        ),
        "ignores starts": (
            at_point(lambda f, point: point if not len(f.starts) else f.starts[0] + 0.1 * (f.low - f.starts[0])),
            "the sum at the point: got -.*; wanted at least that of a start, -",
        ),
        "ignores the seed": (
            {"maximise": lambda self, functions, links=None, seed=0: Draw().maximise(functions, links, None)},
            "the point for the same seed: got .*; wanted the same",
        ),
        "different over relays": (
            maximising(
                lambda right, functions, links: replace(right, point=right.point * (1 - 1e-3 * (links is not None)))
            ),
            "the point over links that relay: got a difference of .*; wanted the same up to rounding",
        ),
        "asks too much": ({"maximise": ask_unpublished}, "numbers asked for in an exchange: got .*; wanted"),
    },
    Members: {
        "different from agents": (
            {"maximise": lambda self, *given: Draw().maximise(*given)},
            r"the choice of agents: got .*; wanted that of maximise\(\)",
        ),
        "wrong traffic": (
            maximising(
                lambda right, functions, links: replace(right, report=one_more_message(right.report)),
                settings=sb.ADMM,
            ),
            r"maximise\(\) over a chain: the traffic: got Traffic.*; wanted that of agents, Traffic",
        ),
    },
    Uniform: {
        "not in the unit cube": (
            deciding(lambda situation, point, report: (situation.domain.from_unit(point), report)),
            r"decide_joint\(\) over a chain: the point: got \[-.*; wanted numbers from \[0.0, ",
        ),
        "no report": (deciding(lambda situation, point, report: (point, None)), "the report: got None; wanted a Solve"),
        "clears links": (
            deciding(lambda situation, point, report: (point, unlinked(report, point, situation.links))),
            "over a chain: links afterwards: got Graph with 0 nodes.*; wanted those",
        ),
        "overwrites the history": (deciding(overwrite_history), "the history: got .*; wanted the one that was given"),
        "not deterministic": (
            deciding(lambda situation, point, report: (np.random.default_rng().random(len(point)), report)),
            "the point for the same history and seed: got .*; wanted the same",
        ),
    },
    First: {
        "no decision": ({"decide": lambda *given: None}, "NoneType: got no points, report; wanted an object with"),
        "no report": (
            {"decide": lambda *given: Decision(First.decide(*given).points, None)},
            r"decide\(\): the report: got None; wanted a SolveReport",
        ),
        "missing agent": (
            with_places(lambda situation, points: {"a": points["a"]}),
            r"decide\(\): agents with a place: got \['a'\]; wanted \['a', 'b', 'c'\]",
        ),
        "not a candidate": (
            with_places(lambda situation, points: points | {"b": points["a"]}),
            r"decide\(\): the place of 'b': got .*; wanted one of its candidates",
        ),
        "clears links": (
            with_places(lambda situation, points: unlinked(points, None, situation.links)),
            r"decide\(\): links afterwards: got Graph with 0 nodes.*; wanted those",
        ),
        "overwrites candidates": (
            with_places(overwrite_candidates),
            r"decide\(\): candidates and starts: got .*; wanted those that were given",
        ),
        "not deterministic": (
            with_places(lambda situation, points: points | {"a": situation.candidates["a"][next(TURN) % 2]}),
            r"decide\(\): the places in the same situation: got .*; wanted the same",
        ),
    },
}
FAULTS = {
    f"{base.__name__} {name}": (base, *broken) for base, all_of in BROKEN.items() for name, broken in all_of.items()
}


@pytest.mark.parametrize("settings", [Search, Draw, Uniform, First])
def test_correct_coordination_methods_pass(settings):
    sb.testing.check_coordinator(settings)


@pytest.mark.parametrize(("base", "changes", "words"), FAULTS.values(), ids=FAULTS)
def test_faulty_coordination_methods_are_refused_with_what_was_got_and_what_is_wanted(base, changes, words):
    broken = type("Broken", (base,), changes)
    with pytest.raises(AssertionError, match=words):
        sb.testing.check_coordinator(broken)


def test_a_plan_for_agents_needs_a_base_that_runs_it():
    class Planned(Draw):
        def plan(self, functions, routes, seed=0):
            """A plan that agents cannot run."""

    with pytest.raises(AssertionError, match=r"Planned, which has plan\(\): got .*; wanted TableMethod or BoxMethod"):
        sb.testing.check_coordinator(Planned)


def test_agents_may_ask_only_for_their_own_factors():
    bowls = Bowls(sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}), np.zeros(2), np.ones(2), [])
    (stack,) = stacks_of(bowls.graph)
    with pytest.raises(AssertionError, match=r"that an agent asked for: got .*'f', 'g'.*; wanted only .*'g'"):
        bowls.of(["g"]).value(stack, np.zeros((2, 1, 1)), ())

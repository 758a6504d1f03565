"""Teams over links with faults: equal decisions in lockstep, timely decisions by a deadline, and logs."""

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.metrics import links_of, links_over_rounds
from swarmbo.plotting.traffic import traffic_figure
from swarmbo.records import LinkReport
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import report_rows
from swarmbo.runs.runner import run
from swarmbo.runs.scenario_files import load
from swarmbo_envs import function_v0

from .teams import CHAIN, CUBE, drive

NAMES = ["a", "b", "c", "d"]
PLACES = {name: np.random.default_rng(k).random((8, 2)) for k, name in enumerate(NAMES)}
CROWDED = dict.fromkeys(NAMES, PLACES["a"])  # all agents have the same candidates
BY_DEADLINE = {"kind": "max-sum", "mode": "asynchronous"}
FAILURE = {"agent": "b", "round": 2, "step": 4}


def team_of(transport="in-process", coordination="max-sum", **more):
    settings = {"seed": 3, "transport": transport, "coordination": coordination, **more}
    return sb.Team.for_field(NAMES, low=[0.0, 0.0], high=[1.0, 1.0], **settings)


def asked(team, rounds=3, places=PLACES):
    """Queries of some rounds, whose outcomes are told at once."""
    out = []
    for _ in range(rounds):
        query = team.ask(places)
        out.append({agent: place.tolist() for agent, place in query.points.items()})
        if query.points:
            team.tell(query, {agent: float(np.sin(9 * place).sum()) for agent, place in query.points.items()})
    return out


@pytest.mark.parametrize("coordination", ["max-sum", "exact"])
def test_lockstep_over_lossy_links_makes_the_same_decisions(coordination):
    clean, lossy = team_of(coordination=coordination), team_of({"kind": "faulty", "loss": 0.4}, coordination)
    assert asked(lossy) == asked(clean)
    assert lossy.last_report.bytes > clean.last_report.bytes
    assert lossy.last_report.links.repeated > 0
    assert clean.last_report.links is UNSET


def test_each_episode_draws_its_own_losses_and_random_choices():
    def episodes(team, told):
        out = []
        for _ in range(3):
            team.begin({})
            out.append([])
            for _ in range(4):
                query = team.ask(None if told is None else PLACES)
                points = {agent: place.tolist() for agent, place in query.points.items()}
                out[-1].append(points if told is None else team.last_report.links.ticks)
                team.tell(query, dict.fromkeys(points, told or 1.0))
        return out

    lossy = episodes(team_of({"kind": "faulty", "loss": 0.5}), 2.0)
    drawn = episodes(team_of(coordination="random"), None)
    for first, second, third in (lossy, drawn):
        assert first != second != third != first
    assert asked(team_of(coordination="random"), 1, None)[0] == drawn[0][0]  # the first episode has the team's seed


def test_decisions_on_a_function_are_the_same_over_lossy_links():
    def points(transport):
        team = sb.Team(CHAIN, CUBE, initial=2, seed=1, transport=transport)
        out = []
        for _ in range(4):
            query = team.ask()
            out.append(query.point)
            team.tell(query, {"f": query.point["x"] - query.point["y"], "g": query.point["z"]})
        return out

    assert points({"kind": "faulty", "loss": 0.3}) == points("in-process")


def function_team(outcomes, transport, **more):
    graph = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{n + 1}"] for n in range(3)})
    kind = {"kind": "admm", "mode": "asynchronous", "deadline": 30, "patience": 8, **more}
    bounds = dict.fromkeys(graph.variables, (0.0, 10.0))
    return sb.Team(graph, bounds, initial=3, seed=1, outcomes=outcomes, coordination=kind, transport=transport)


def points_of(team, rounds):
    """Points and reports of a function's team in some rounds, whose outcomes are told at once."""
    out = []
    for _ in range(rounds):
        query = team.ask()
        outcome_of = {f"f{n}": -((query.point[f"x{n}"] - query.point[f"x{n + 1}"] - n) ** 2) for n in range(3)}
        team.tell(query, outcome_of if team.problem.outcomes == "per-factor" else sum(outcome_of.values()))
        out.append((query.point, team.last_report))
    return out


@pytest.mark.parametrize("outcomes", ["per-factor", "total"])
def test_a_failed_agent_blocks_no_later_round_of_a_function_and_may_join_again(outcomes):
    failure, back = {"agent": "x1", "round": 5, "step": 6}, {"agent": "x1", "round": 7}
    transport = {"kind": "faulty", "loss": 0.2, "delay": 2, "deaths": [failure], "joins": [back]}
    reports = [report for _, report in points_of(function_team(outcomes, transport), 7)]
    assert [report.status for report in reports] == ["not_needed"] * 3 + ["deadline"] * 4
    assert ["x1" in report.links.silent for report in reports[3:]] == [False, True, True, False]
    assert any(edge.startswith("x1>") for edge in reports[6].links.edges)
    blocked = function_team(outcomes, transport, mode="lockstep")
    assert points_of(blocked, 5)[4][1].status == "blocked"


def test_unchanged_offers_are_sent_in_full_while_an_agent_is_absent():
    def bytes_of_reports(**faults):
        team, sent = team_of({"kind": "faulty", **faults}, BY_DEADLINE), []
        for _ in range(3):
            team.ask(PLACES)
            sent.append(team.sent["reports"].bytes)
        return sent

    first, second, third = bytes_of_reports()
    assert second == third < first / 2
    first, second, third = bytes_of_reports(deaths=[{"agent": "a", "round": 1}])
    assert second == third > first / 2


@pytest.mark.parametrize("places", [CROWDED, pytest.param(PLACES, marks=pytest.mark.slow)])
def test_by_a_deadline_agents_get_different_locations(places):
    for transport in ("in-process", {"kind": "faulty", "loss": 0.5, "delay": 5, "duplicate": 0.2, "reorder": 0.5}):
        team = team_of(transport, BY_DEADLINE)
        for points in asked(team, 3, places):
            chosen = list(map(tuple, points.values()))
            assert len(set(chosen)) == len(chosen)
            assert len(points) >= 3
        assert (team.last_report.status, team.last_report.rounds) == ("deadline", 20)
        assert team.last_report.links.clashes == 0


@pytest.mark.parametrize("coordination", ["max-sum", BY_DEADLINE])
def test_an_agent_that_fails_in_a_decision_is_left_out_until_it_joins(coordination):
    transport = {"kind": "faulty", "deaths": [FAILURE], "joins": [{"agent": "b", "round": 4}]}
    team = team_of(transport, coordination)
    before, failing = asked(team, 2)
    assert team.last_report.status == ("blocked" if coordination == "max-sum" else "deadline")
    assert "b" in team.last_report.links.silent
    gone, back = asked(team, 2)
    assert set(before) == set(back) == set(NAMES)
    assert "b" not in failing
    assert set(gone) == set(NAMES) - {"b"}


def test_faults_of_unknown_agents_and_a_mode_of_a_kind_without_modes_are_refused():
    with pytest.raises(ConfigError, match=r"\$\.transport: got faults of \['e'\]; wanted some of \['a'"):
        team_of({"kind": "faulty", "deaths": [{"agent": "e", "round": 1}]})
    with pytest.raises(
        ConfigError, match=r"unknown key 'mode'; .* of kind 'exact': .*; kinds with this key: 'admm', 'max-sum'"
    ):
        team_of(coordination={"kind": "exact", "mode": "asynchronous"})


def test_a_run_logs_reports_and_draws_faults_of_links(tmp_path):
    overrides = [
        *("rounds=3", "coordination.kind=max-sum", "coordination.mode=asynchronous"),
        *("transport.kind=faulty", "transport.loss=0.3", 'transport.deaths=[{agent="robot_1", round=2, step=3}]'),
    ]
    summary = run(load("robots-window", overrides), tmp_path / "run")
    records = load_run(tmp_path / "run").records
    links = [links_of(record) for record in records]
    assert links[0] is None
    assert all(isinstance(report, LinkReport) and report.ticks == 20 for report in links[1:])
    assert "robot_1" in links[2].silent
    assert not any("robot_1" in edge for edge in links[3].edges)
    total = links_over_rounds(records)
    assert total == summary.links
    assert (
        0 < total.total.messages < summary.agreement.messages
    )  # the other messages, claims and choices, are never lost
    assert 0.2 < total.total.lost / total.total.messages < 0.45
    rows = dict(report_rows(summary))
    assert rows["conflicting choices"] == "none"
    assert rows["agents failed or silent"] == "robot_1"
    assert rows["messages lost"].endswith("% of those to agree, mean age of the others 1 ticks")
    assert len(traffic_figure(records).axes) >= 3
    plain = run(load("robots-window", ["rounds=1"]), tmp_path / "plain")
    assert "messages lost" not in dict(report_rows(plain))
    assert b'"links"' not in msgspec.json.encode(plain)


def test_with_outcomes_per_factor_those_of_a_failed_agent_are_missing():
    env = function_v0.parallel_env(function="additive-gp", parameters={"n_variables": 4}, outcomes="per-factor")
    timed = sb.ADMM(mode="asynchronous", deadline=12, patience=4, starts=2)
    failing = env.possible_agents[1]
    transport = {"kind": "faulty", "deaths": [{"agent": failing, "round": 4, "step": 2}]}
    team = sb.Team.for_env(env, coordination=timed, transport=transport, initial=2, seed=0)
    drive(env, team, 5, seed=1)
    known = np.isfinite(team.history.factors).sum(axis=0)
    for factor, count in zip(team.graph.factors, known, strict=True):
        assert count == (3 if team.graph.owner(factor) == failing else 5)
    assert team.failures == 0  # missing outcomes are not failures


def test_a_team_continues_without_a_part_whose_agents_have_all_failed():
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b"], "h": ["c", "d"], "k": ["d"]})
    timed = sb.ADMM(mode="asynchronous", deadline=8, patience=3, starts=2)
    faults = {"kind": "faulty", "deaths": [{"agent": name, "round": 3} for name in "cd"]}
    bounds = dict.fromkeys("abcd", (0.0, 1.0))
    team = sb.Team(graph, bounds, outcomes="per-factor", coordination=timed, transport=faults, initial=2)
    for _ in range(6):
        query = team.ask()
        team.tell(query, {factor: -sum(query.point[x] ** 2 for x in graph.scope(factor)) for factor in "fg"})
    best = max(-(x[0] ** 2) - 2 * x[1] ** 2 for x in team.history.X.tolist())
    assert team.recommend().mean == pytest.approx(best, abs=0.3)

"""A served field writes a run folder with one round per query that has all its outcomes."""

import errno
import itertools
import os
import re
import shutil
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.errors import ConfigError, RunFolderError, SwarmboWarning
from swarmbo.evaluations.ledger import LEDGER
from swarmbo.runs import load, load_run
from swarmbo.serve.messages import AskRequest, TellRequest, Told
from swarmbo.serve.server import open_broker

ROUNDS = 3
SCENARIO = f"""
rounds = {ROUNDS}
belief = {{ restarts = 0 }}
[environment]
id = "served/field-v0"
agents = ["ada", "ben"]
low = [0.0, 0.0]
high = [100.0, 50.0]
"""


@pytest.fixture
def scenario(tmp_path):
    pytest.importorskip("starlette")
    (tmp_path / "survey.toml").write_text(SCENARIO)
    return load(tmp_path / "survey.toml")


def depth(place):
    return float(np.sin(place[0] / 20.0) + place[1] / 50.0)


def ask(broker):
    return broker.ask(AskRequest(key=f"k{broker.ledger.n_asked}"))


def tell(broker, asked, agents=("ada", "ben"), **more):
    broker.tell(asked.query, TellRequest(outcome={agent: depth(asked.locations[agent]) for agent in agents}, **more))


def rounds_of(folder):
    return (folder / "rounds.jsonl").read_text().splitlines()


def test_null_is_a_failure_and_a_plain_number_is_the_outcome_of_a_single_factor(tmp_path, scenario):
    with open_broker(scenario, tmp_path / "field", 8, False) as broker:
        query, null = ask(broker).query, TellRequest(outcome=None)
        with pytest.raises(ConfigError, match="got an empty table"):
            broker.tell(query, TellRequest(outcome={}))
        assert broker.tell(query, null) == Told(query, True, False, 1, ROUNDS)
        assert not broker.tell(query, null).is_new
    (tmp_path / "function.toml").write_text(
        'rounds = 4\n[environment]\nid = "served/function-v0"\nbounds = { x = [0.0, 1.0] }\n'
        'scopes = { f = ["x"] }\noutcomes = "per-factor"\n'
    )
    folder = tmp_path / "function"
    with open_broker(load(tmp_path / "function.toml"), folder, 8, False) as broker:
        for outcome in (2.0, {"f": 2.0}, None):
            broker.tell(ask(broker).query, TellRequest(outcome=outcome))
    records = [msgspec.json.decode(line) for line in rounds_of(folder)[1:]]
    assert [one["joint"]["factors"] for one in records] == [{"f": 2.0}, {"f": 2.0}, {"f": None}]


def test_outcomes_in_parts_keep_their_own_noise_and_repeated_parts_change_nothing(tmp_path):
    (tmp_path / "function.toml").write_text(
        'rounds = 2\ninitial = 2\n[environment]\nid = "served/function-v0"\noutcomes = "per-factor"\n'
        'bounds = { x = [0.0, 1.0], y = [0.0, 1.0], z = [0.0, 1.0] }\nscopes = { f = ["x", "y"], g = ["y", "z"] }\n'
    )
    with open_broker(load(tmp_path / "function.toml"), tmp_path / "served", 8, False) as broker:
        query, other = ask(broker), ask(broker)
        parts = [{"outcome": {"f": 1.0}, "noise_std": {"f": 0.5}}, {"outcome": {"g": 2.0}, "noise_std": 0.25}]
        for n_told, part in enumerate(parts):
            assert broker.tell(query.query, TellRequest(**part)) == Told(query.query, True, n_told == 0, n_told, 2)
            for moved in (None, query.point | {"z": 0.0}):
                assert not broker.tell(query.query, TellRequest(**part, point=moved)).is_new
        assert len(broker.ledger.events) == 5
        assert broker.best().point == query.point
        broker.tell(other.query, TellRequest(outcome={"f": 3.0, "g": 4.0}, noise_std=0.125))
        known = broker.ledger.team.history.known_noise[:, 1:].tolist()
    table = load_run(tmp_path / "served").table()
    assert known == [[0.5, 0.25], [0.125, 0.125]]
    named = zip(table["noise_std"], table["factor"], strict=True)
    assert [std for std, factor in named if factor] == list(itertools.chain(*known))


def test_rounds_follow_the_order_in_which_queries_become_complete(tmp_path, scenario, blank):
    folder = tmp_path / "served"
    with open_broker(scenario, folder, 8, False) as broker:
        first, second, third = ask(broker), ask(broker), ask(broker)
        tell(broker, first, ["ada"], noise_std={"ada": 0.25})
        assert len(rounds_of(folder)) == 1  # only round 0
        tell(broker, second)
        tell(broker, first, ["ben"], locations={"ben": [1.0, 2.0]})
        tell(broker, first, ["ben"])  # a repeated request
        broker.tell(third.query, TellRequest(outcome={"ada": 7.0}))
        broker.tell(third.query, TellRequest(failed=True))
    done = load_run(folder)
    assert done.is_complete
    assert [record.query for record in done.records[1:]] == [second.query, first.query, third.query]
    ada, ben = done.records[2].samples
    place = first.locations["ada"]
    assert (ada.location, ada.target, ada.measurement) == (place, place, depth(place))
    assert (ada.noise_std, ben.location, ben.target) == (0.25, [1.0, 2.0], first.locations["ben"])
    assert [sample.measurement for sample in done.records[3].samples] == [7.0, None]
    assert done.best.mean == 7.0
    assert {path.name for path in done.plot("belief", "regret")} == {"belief.png", "regret.png"}
    assert len(done.table()["value"]) == 2 * ROUNDS


def test_after_a_kill_missing_rounds_are_logged(tmp_path, scenario):
    whole = tmp_path / "whole"
    with open_broker(scenario, whole, 8, False) as broker:
        for _ in range(ROUNDS):
            asked = ask(broker)
            tell(broker, asked, ["ben"])
            tell(broker, asked, ["ada"])
    lines = rounds_of(whole)
    for kept in range(ROUNDS + 1):
        folder = tmp_path / f"kept-{kept}"
        shutil.copytree(whole, folder)
        (folder / "summary.json").unlink()
        (folder / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines[: kept + 1]))
        with open_broker(scenario, folder, 8, False) as broker:
            assert broker.ledger.n_told == ROUNDS
        assert rounds_of(folder) == lines
        assert load_run(folder).is_complete
    assert (whole / LEDGER).is_file()


def test_after_a_kill_overlapping_queries_are_repeated_exactly(tmp_path, scenario):
    """Decisions depend only on the ledger, not on the time of a record or of a request for the best point."""
    longer, folder = msgspec.structs.replace(scenario, rounds=6), tmp_path / "served"
    longer.environment["agents"] = ["ada", "ben", "cyd"]
    with open_broker(longer, folder, 8, False) as broker:
        first = ask(broker)
        tell(broker, first, ["ada", "ben"])
        # a query becomes complete while another one is partly told, and more of that is told before the next ask
        for _ in range(2):
            second = ask(broker)
            tell(broker, second, ["cyd"])
            tell(broker, first, ["cyd"])
            broker.best()
            tell(broker, second, ["ben"])
            third = ask(broker)
            tell(broker, third, ["ben"])
            tell(broker, second, ["ada"])
            tell(broker, third, ["ada"])
            first = third
        points = [event.point for event in broker.ledger.events if event.kind == "ask"]
    with open_broker(longer, folder, 8, False) as broker:
        assert [event.point for event in broker.ledger.events if event.kind == "ask"] == points


def test_a_temporarily_full_disk_loses_nothing(tmp_path, scenario, monkeypatch):
    """After a failed write to any log, the folder can be opened again and continued."""
    sync = os.fsync

    def told_twice(folder, at):
        """Let the call number `at` fail; return the number of refused tells, and the rounds after repeated tells."""
        calls = itertools.count(1)

        def full(file):
            if next(calls) == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(file)

        with open_broker(scenario, folder, 8, False) as broker:
            queries, n_refused = [ask(broker), ask(broker)], 0
            monkeypatch.setattr(os, "fsync", full)
            for query, agent in itertools.product(queries, ("ada", "ben")):
                try:
                    tell(broker, query, [agent])
                except RunFolderError:
                    n_refused += 1
        with open_broker(scenario, folder, 8, False) as broker:
            for query in queries:
                tell(broker, query)
            assert broker.ledger.n_told == 2
            assert np.isfinite(broker.ledger.team.history.factors).all()
        return n_refused, rounds_of(folder)

    none_refused, rounds = told_twice(tmp_path / "whole", 0)
    assert none_refused == 0
    for at in range(1, 7):
        n_refused, after = told_twice(tmp_path / str(at), at)
        assert n_refused > 0
        assert after == rounds


@pytest.mark.parametrize("agents", [["ada"], ["ada", "ben"]])
def test_after_a_failed_record_the_service_refuses_calls_until_it_is_opened_again(
    tmp_path, scenario, monkeypatch, agents
):
    """Because the team or the ledger is then ahead of the files."""

    def fails(*arguments):
        raise ZeroDivisionError("of the record")

    where = "swarmbo.runs.ledger_rounds.record_round" if len(agents) == 2 else "swarmbo.evaluations.ledger.append_line"
    for folder in (tmp_path / "whole", tmp_path / "served"):
        with open_broker(scenario, folder, 8, False) as broker:
            first, second = ask(broker), ask(broker)
            if folder.name == "served":
                with monkeypatch.context() as patch:
                    patch.setattr(where, fails)
                    with pytest.raises(ZeroDivisionError):
                        tell(broker, first, agents)
                for query in (first, second):
                    with pytest.raises(RunFolderError, match=r"refuses calls since one failed.*of the record.*open it"):
                        tell(broker, query)
        with open_broker(scenario, folder, 8, False) as broker:
            assert broker.ledger.n_told == (folder.name == "served" and len(agents) == 2)
            tell(broker, first)
            tell(broker, second)
    assert rounds_of(tmp_path / "served") == rounds_of(tmp_path / "whole")


def test_a_duration_that_cannot_be_logged_gives_only_a_warning(tmp_path, scenario):
    with open_broker(scenario, tmp_path / "served", 8, False) as broker:
        (tmp_path / "served" / "timings.jsonl").unlink()
        (tmp_path / "served" / "timings.jsonl").mkdir()
        for number in range(1, 3):
            with pytest.warns(SwarmboWarning, match=f"the duration of round {number} cannot be written"):
                tell(broker, ask(broker))
    assert len(rounds_of(tmp_path / "served")) == 3


def test_without_a_logged_last_round_there_is_no_summary(tmp_path, scenario, monkeypatch):
    with open_broker(scenario, tmp_path / "served", 8, False) as broker, monkeypatch.context() as patch:
        for number in range(ROUNDS):
            if number == ROUNDS - 1:
                patch.setattr("swarmbo.runs.folder.RunFolder.append", lambda *_: 1 / 0)
            with nullcontext() if number < ROUNDS - 1 else pytest.raises(ZeroDivisionError):
                tell(broker, ask(broker))
    assert not (tmp_path / "served" / "summary.json").exists()
    with open_broker(scenario, tmp_path / "served", 8, False):
        pass
    assert load_run(tmp_path / "served").is_complete


def test_an_error_names_rounds_that_do_not_match_the_ledger(tmp_path, scenario):
    for folder, order in ((tmp_path / "one", (0, 1)), (tmp_path / "other", (1, 0))):
        with open_broker(scenario, folder, 8, False) as broker:
            asked = [ask(broker), ask(broker)]
            for index in order:
                tell(broker, asked[index])
    shutil.copy(tmp_path / "other" / "rounds.jsonl", tmp_path / "one")
    message = "has query q00002 as round 1, and the ledger that of q00001; delete round 1 and .*swarmbo serve .* --out"
    with pytest.raises(RunFolderError, match=message), open_broker(scenario, tmp_path / "one", 8, False):
        pass
    (tmp_path / "one" / "rounds.jsonl").unlink()
    with open_broker(scenario, tmp_path / "one", 8, False) as broker:
        assert broker.ledger.n_told == 2


def test_a_service_is_not_resumed_because_its_environment_would_simulate_outcomes(tmp_path, scenario):
    with open_broker(scenario, tmp_path / "served", 8, False) as broker:
        tell(broker, ask(broker))
    before = rounds_of(tmp_path / "served")
    commands = {r"`swarmbo serve … --out \S+served`": ["resume"]}
    commands[r"`swarmbo serve`"] = ["run", str(tmp_path / "survey.toml"), "--out"]
    for wanted, arguments in commands.items():
        refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "served")])
        assert refused.exit_code == 2
        assert re.search(wanted, refused.stderr)
    assert rounds_of(tmp_path / "served") == before


def test_without_outcomes_there_is_no_animation(tmp_path, scenario, blank):
    with open_broker(scenario, tmp_path / "served", 8, False) as broker:
        ask(broker)
    assert "run.gif" not in {path.name for path in load_run(tmp_path / "served").plot()}

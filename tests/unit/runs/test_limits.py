"""Limits of scenarios, chains of digests, and what decides about a run, at their edges."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from swarmbo.boundary.files import logged_lines, read_seal, seal
from swarmbo.errors import ConfigError
from swarmbo.records import Evaluation, Labels, RoundRecord
from swarmbo.registry import SLOTS
from swarmbo.runs import runner
from swarmbo.runs.recording import summarise
from swarmbo.runs.scenario import require_shallow, require_within_reason
from swarmbo.runs.scenario_files import settings_begun

START = "0" * 32


@pytest.mark.parametrize(
    ("key", "fits", "beyond"),
    [
        ("restarts", 100_000, 100_001),
        ("restarts", -100_000, -100_001),
        ("table_budget", 2**31, 2**31 + 1),
        ("entries", 2**31, 2**31 + 1),
        ("step", 1e12, 1.1e12),
        ("step", -1e-12, -0.9e-12),
        ("step", 0.0, 1e-13),
    ],
)
@pytest.mark.parametrize("within", [lambda t: t, lambda t: {"inner": t}, lambda t: {"list": [{}, t]}])
def test_a_number_at_its_limit_is_taken_and_one_beyond_is_refused_wherever_it_stands(key, fits, beyond, within):
    def check(value):
        tables = {slot: within({key: value}) if slot == SLOTS[0] else {} for slot in SLOTS}
        require_within_reason(SimpleNamespace(**tables))

    check(fits)
    check([fits, fits])
    for wrong in (beyond, [fits, beyond]):
        with pytest.raises(ConfigError, match=rf"\$\.{SLOTS[0]}.*{key}.*: got"):
            check(wrong)


def test_seeds_and_switches_have_no_limit():
    table = {"seed": 2**60, "sampling_seed": 2**60, "switch": True, "name": "1e99"}
    require_within_reason(SimpleNamespace(**dict.fromkeys(SLOTS, table)))


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_tables_are_nested_32_deep_at_most(wrap):
    def nested(depth):
        value = {}
        for _ in range(depth - 2):
            value = wrap(value)
        return {"top": value}

    require_shallow(nested(32), at="here")
    with pytest.raises(ConfigError, match="here: is nested more than 32 deep"):
        require_shallow(nested(33), at="here")


def test_each_line_of_a_log_is_sealed_to_those_before_it():
    lines, sealed, after = [msgspec.json.encode(RoundRecord(number, [])) for number in range(3)], [], START
    for line in lines:
        sealed.append(seal(line, after))
        after = read_seal(sealed[-1], after).digest

    def read(*rows, start=START):
        text = b"".join(row + b"\n" for row in rows)
        return logged_lines(text, start, Path("rounds.jsonl"), RoundRecord, lambda record, n: record.round == n)

    whole = read(*sealed)
    assert (whole.lines, whole.digest, whole.damage) == (lines, after, None)
    assert whole.length == sum(map(len, sealed)) + 3
    for rows, start, known in (
        (sealed, "1" * 32, 0),  # of a run with other settings
        ([sealed[0], sealed[2]], START, 1),  # one was cut out
        ([*sealed[:2], seal(lines[2])], START, 2),  # one that was written anew
    ):
        log = read(*rows, start=start)
        assert log.lines == lines[:known]
        assert f"line {known + 1} was changed or damaged" in log.damage
    strange = seal(msgspec.json.encode(RoundRecord(5, [])), read_seal(sealed[1], "").digest)
    log = read(*sealed[:2], strange)
    assert "line 3 is not the record of round 2" in log.damage
    torn = read(*sealed[:2], lines[2])
    assert (torn.lines, torn.damage, torn.length) == (lines[:2], None, len(sealed[0]) + len(sealed[1]) + 2)


@pytest.mark.parametrize(("rounds", "late"), [(1, 1), (4, 1), (8, 2), (9, 3)])
def test_late_rounds_are_the_last_quarter_rounded_up(rounds, late):
    records = [RoundRecord(n, [], joint=Evaluation([0.0], float(n))) for n in range(rounds + 1)]
    scenario = SimpleNamespace(name="mine", seed=0)
    summary = summarise(scenario, records, Labels(), None, seconds=0.0)
    assert (summary.late_rounds, summary.late_mean) == (late, rounds - 0.5 * (late - 1))


@pytest.mark.parametrize("trust", [True, False])
def test_code_is_loaded_only_where_it_is_trusted_to_see_whether_a_run_has_ended(tmp_path, monkeypatch, trust):
    loaded, scenario = [], SimpleNamespace(name="mine")
    folder = SimpleNamespace(scenario=lambda: scenario, require_same_code=loaded.append)
    kind = SimpleNamespace(holds_run=lambda path: True, open=lambda path: folder)
    monkeypatch.setattr(runner, "RunFolder", kind)
    monkeypatch.setattr(runner, "digests", lambda scenario: {"own:Code": "digest"})
    monkeypatch.setattr(runner, "read_summary", lambda folder: "the summary")
    assert runner.ended(scenario, tmp_path, trust) == "the summary"
    assert loaded == [{"own:Code": "digest"}] * trust
    assert runner.ended(SimpleNamespace(name="another"), tmp_path, trust) is None


def test_settings_that_a_world_of_a_users_own_is_given_are_completed(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[environment]\nid = "my_worlds:Pond"\ndepth = 3\n[environment.field]\nscale = 1.0\n'
    )
    assert settings_begun(str(tmp_path / "mine.toml"), "environment.d") == ["environment.depth="]
    assert settings_begun(str(tmp_path / "mine.toml"), "environment.field.") == ["environment.field.scale="]

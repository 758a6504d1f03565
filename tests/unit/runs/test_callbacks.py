"""Callbacks get each round once, even if a run is killed between its log and its callbacks, then resumed."""

import csv
import errno
import os
import sys

import pytest

from swarmbo.errors import ConfigError, OwnCodeError, RunFolderError
from swarmbo.runs import RunFolder, load, progress, resume, run
from swarmbo.runs.callbacks import callback_settings, numbers_of

SETTINGS = ["rounds=4", "initial=4", "environment.noise_std=0.0"]


@pytest.fixture(params=[False, True], ids=["after callbacks", "before callbacks"])
def resumed(request, interrupted, monkeypatch):
    """A function that runs with callbacks, interrupted before or after those of round 2; resumes; returns records."""

    def make(folder, callbacks):
        with monkeypatch.context() as patch:
            if request.param:
                whole = progress._CallbackCalls.on_round

                def on_round(self, record, was_logged):
                    if record.round == 2:
                        raise KeyboardInterrupt
                    whole(self, record, was_logged)

                patch.setattr(progress._CallbackCalls, "on_round", on_round)
            interrupted(load("camel", [*SETTINGS, f"callbacks={callbacks}"]), folder, 2)
        resume(folder)
        return RunFolder.open(folder).records()

    return make


def test_rounds_csv_has_each_round_once(tmp_path, resumed):
    records = resumed(tmp_path / "a", "[]")
    run(load("camel", SETTINGS), tmp_path / "b")
    whole = (tmp_path / "b" / "rounds.csv").read_bytes()
    assert (tmp_path / "a" / "rounds.csv").read_bytes() == whole
    rows = list(csv.DictReader(whole.decode().splitlines()))
    assert [int(row["round"]) for row in rows] == [0, 1, 2, 3, 4]
    for row, record in zip(rows, records, strict=True):
        assert {name: float(cell) for name, cell in row.items() if cell and name != "round"} == numbers_of(record)


def test_a_round_logged_by_another_process_during_reading_has_one_row(tmp_path):
    """As in a run with ``step_timeout_s``: its process continues while this process reads the log."""
    run(scenario := load("camel", SETTINGS), tmp_path)
    whole = (tmp_path / "rounds.csv").read_bytes()
    with progress.run_hooks(scenario, tmp_path, lambda *_: None) as hooks:
        for record in RunFolder.open(tmp_path).records():
            hooks.on_round(record, record.round < 2)
    assert (tmp_path / "rounds.csv").read_bytes() == whole


def test_an_error_names_the_table_that_a_full_disk_cannot_store(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("swarmbo.runs.callbacks._row", full)
        with pytest.raises(RunFolderError, match=r"rounds\.csv: cannot be written: No space left on device; resume"):
            run(load("camel", SETTINGS), tmp_path)
    resume(tmp_path)
    assert [row.split(",")[0] for row in (tmp_path / "rounds.csv").read_text().split()][1:] == list("01234")


def full(record):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_incomplete_row_is_written_again(tmp_path, interrupted):
    interrupted(load("camel", SETTINGS), tmp_path, 2)
    table = tmp_path / "rounds.csv"
    table.write_bytes(table.read_bytes()[:-9])
    resume(tmp_path)
    assert [row.split(",")[0] for row in table.read_text().split()] == ["round", "0", "1", "2", "3", "4"]


def test_tensorboard_has_each_step_once(tmp_path, resumed):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    records = resumed(tmp_path, '["tensorboard"]')
    found, wanted = [], [(record.round, *pair) for record in records for pair in numbers_of(record).items()]
    for file in (tmp_path / "tensorboard").iterdir():
        rest = file.read_bytes()
        while rest:  # length and its checksum, event and its checksum
            length = int.from_bytes(rest[:8], "little")
            event = event_pb2.Event.FromString(rest[12 : 12 + length])
            numbers = [value for value in event.summary.value if value.HasField("simple_value")]
            found += [(event.step, value.tag, value.simple_value) for value in numbers]
            rest = rest[16 + length :]
    assert [one[:2] for one in sorted(found)] == [one[:2] for one in sorted(wanted)]
    assert [one[2] for one in sorted(found)] == pytest.approx(
        [one[2] for one in sorted(wanted)], rel=1e-6
    )  # stored as float32


@pytest.mark.filterwarnings("ignore")  # warnings of packages that MLflow imports
def test_mlflow_has_each_step_once(tmp_path, monkeypatch, resumed):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    records = resumed(tmp_path / "run", f'[{{kind = "mlflow", tracking_uri = "{uri}", experiment = "mine"}}]')
    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["environment.function"] == "camel"
    for name in found.data.metrics:
        history = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
        assert history == [(r.round, numbers_of(r)[name]) for r in records if name in numbers_of(r)]
    assert found.data.metrics["simple_regret"] == records[-1].score.simple_regret


OWN = """
from pathlib import Path

class Log:
    def __init__(self, file, fails_at=None):
        self.file, self.fails_at = Path(file), fails_at

    def begin(self, folder, settings, earlier):
        self._say(f"begin {folder.name} {settings['name']} {[record.round for record in earlier]}")

    def on_round(self, record):
        if record.round == self.fails_at:
            raise RuntimeError("full")
        self._say(f"round {record.round}")

    def end(self, is_complete):
        self._say(f"end {is_complete}")

    def _say(self, text):
        with self.file.open("a") as file:
            file.write(text + "\\n")

class Half:
    def on_round(self, record): ...
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_callbacks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("own_callbacks", None)


def of_own(file, more=""):
    return [*SETTINGS, f'callbacks=[{{kind = "own_callbacks:Log", file = "{file}"{more}}}]']


def test_own_callbacks_get_rounds_in_order(own, interrupted):
    log = own / "log.txt"
    interrupted(load("camel", of_own(log), trust=True), own / "run", 1, trust=True)
    resume(own / "run", trust=True)
    first = ["begin run camel []", "round 0", "round 1", "end False"]
    then = ["begin run camel [0, 1]", "round 2", "round 3", "round 4", "end True"]
    assert log.read_text().splitlines() == [*first, *then]


def test_own_callbacks_need_trust_and_all_methods(own):
    with pytest.raises(ConfigError, match=r"callbacks\[0\].*--trust"):
        load("camel", of_own("x"))
    scenario = load("camel", [*SETTINGS, 'callbacks=["own_callbacks:Half"]'], trust=True)
    with pytest.raises(ConfigError, match="begin, on_round and end"):
        run(scenario, own / "run", trust=True)
    assert not (own / "run").exists()


def test_an_error_names_a_callback_that_raises_and_the_run_resumes_after_its_repair(own):
    log = own / "log.txt"
    scenario = load("camel", of_own(log, ", fails_at = 2"), trust=True)
    with pytest.raises(OwnCodeError, match=r"own_callbacks:Log.on_round raised RuntimeError: full"):
        run(scenario, own / "run", trust=True)
    code = own / "own_callbacks.py"
    code.write_text(OWN.replace('raise RuntimeError("full")', "pass"))
    sys.modules.pop("own_callbacks")
    resume(own / "run", trust=True)
    assert log.read_text().splitlines()[-4:] == ["begin run camel [0, 1, 2]", "round 3", "round 4", "end True"]


def test_all_callbacks_end_although_one_raises_at_its_end(own):
    two = f'callbacks=[{{kind="own_callbacks:Raises"}}, {{kind="own_callbacks:Log", file="{own / "log.txt"}"}}]'
    raising = (
        "class Raises(Log):\n    def __init__(self): super().__init__('other.txt')\n    def _say(self, text): pass\n"
    )
    (own / "own_callbacks.py").write_text(
        f"{OWN}\n{raising}    def end(self, is_complete): raise OSError('no server')\n"
    )
    with pytest.raises(OwnCodeError, match=r"own_callbacks:Raises\.end raised OSError: no server"):
        run(load("camel", [*SETTINGS, two], trust=True), own / "run", trust=True)
    assert (own / "log.txt").read_text().splitlines()[-1] == "end True"


def test_a_missing_package_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    for package in ("tensorboardX", "mlflow"):
        monkeypatch.setitem(sys.modules, package, None)
    for kind, package in (("tensorboard", "tensorboardX"), ("mlflow", "mlflow")):
        with pytest.raises(ConfigError, match=rf"'{package}', which is not .*; pip install \"swarmbo\[{kind}\]\""):
            run(load("camel", [*SETTINGS, f'callbacks=["{kind}"]']), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "at", "message"),
    [
        (["tensorbord"], "[0]", "did you mean 'tensorboard'"),
        (["tensorboard", {"kind": "mlflow", "experment": "x"}], "[1]", "did you mean 'experiment'"),
        ([3], "[0]", "wanted a kind of callback"),
        ([{}], "[0]", "kind"),
    ],
)
def test_wrong_callbacks_are_refused(given, at, message):
    with pytest.raises(ConfigError, match=message) as caught:
        callback_settings(given)
    assert caught.value.at.startswith(f"$.callbacks{at}")


def test_force_deletes_the_output_of_callbacks(tmp_path):
    pytest.importorskip("tensorboardX")
    scenario = load("camel", [*SETTINGS, 'callbacks=["tensorboard"]'])
    run(scenario, tmp_path)
    run(load("camel", SETTINGS), tmp_path, force=True)
    assert not (tmp_path / "tensorboard").exists()
    assert (tmp_path / "rounds.csv").is_file()

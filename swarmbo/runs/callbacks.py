"""Callbacks: receivers of each round of a run, such as those for TensorBoard and MLflow, and their settings.

The run's log is authoritative: a resumed run first passes the logged rounds to a callback, so each is written once.
"""

import csv
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from swarmbo.boundary import values
from swarmbo.boundary.files import naming, read_regular, regular_file, replacing, write_rows
from swarmbo.errors import ConfigError, UnwritableError, needed
from swarmbo.metrics import agreement_traffic, declined, distance_travelled, total_cost
from swarmbo.records import RoundRecord
from swarmbo.registry import is_user_code, load, make
from swarmbo.runs.stored_files import EVENT_FILES, EVENTS, MLFLOW_RUN, ROUNDS
from swarmbo.settings import Settings, convert

_SCORES = ("simple_regret", "batch_regret", "total_regret", "recommendation_regret", "map_rmse", "level_f1")
_COLUMNS = (
    *("best", "recommendation", "recommendation_std", *_SCORES),
    *("measurements", "failures", "declined", "cost", "distance", "messages", "bytes"),
)
AT = "$.callbacks"
_METRICS_PER_CALL = 1000  # MLflow's limit
_LONGEST_PARAMETER = 6000  # characters of a parameter's value; MLflow's limit


@runtime_checkable
class Callback(Protocol):
    """Receiver of the rounds of a run. An exception in a method ends the run, which can be resumed.

    Example:
        >>> class Printer:
        ...     def begin(self, folder, settings, earlier):
        ...         print(settings["name"], len(earlier))
        ...
        ...     def on_round(self, record):
        ...         print(record.round, numbers_of(record)["measurements"])
        ...
        ...     def end(self, is_complete):
        ...         print(is_complete)
        >>> isinstance(Printer(), Callback)
        True
    """

    def begin(self, folder: Path, settings: Mapping[str, Any], earlier: Sequence[RoundRecord]) -> None:
        """Begin, before the first new round.

        Args:
            folder: Folder of the run.
            settings: The scenario as plain data.
            earlier: Rounds that are in the log already, as in a resumed run. An earlier process may have received all
                of them, or all but the last.
        """
        ...

    def on_round(self, record: RoundRecord) -> None:
        """Take a new round, which is in the log."""
        ...

    def end(self, is_complete: bool) -> None:
        """End, after the last round, or when the run stops before it."""
        ...


def numbers_of(record: RoundRecord) -> dict[str, float]:
    """Numbers of a round by name; unknown numbers are left out.

    ``measurements``, ``failures``, ``declined``, ``cost``, ``distance``, ``messages`` and ``bytes`` are per round.
    """
    evaluations = record.evaluations
    succeeded = sum(evaluation.measurement is not None for evaluation in evaluations)
    traffic = agreement_traffic([record]) + record.sharing
    numbers: dict[str, float | None] = {
        "best": None if record.best is None else record.best.mean,
        "recommendation": None if record.recommendation is None else record.recommendation.mean,
        "recommendation_std": None if record.recommendation is None else record.recommendation.std,
        **{name: getattr(record.score, name, None) for name in _SCORES},
        "measurements": succeeded,
        "failures": len(evaluations) - succeeded,
        "declined": declined([record]),
        "cost": total_cost([record]),
        "distance": math.fsum(distance_travelled([record]).values()),
        "messages": traffic.messages,
        "bytes": traffic.bytes,
    }
    return {name: value for name, value in numbers.items() if value is not None}


class RoundsTable:
    """``rounds.csv``: the numbers of each round, one row a round, kept up to date."""

    def begin(self, folder: Path, settings: Mapping[str, Any], earlier: Sequence[RoundRecord]) -> None:
        """Rewrite the earlier rounds, because a killed process may have left an incomplete row."""
        path = folder / ROUNDS
        self._writing = partial(naming, path, "cannot be written", "; resume the run with more room", UnwritableError)
        with self._writing():
            write_rows(path, [("round", *_COLUMNS), *map(_row, earlier)])
            self._file = path.open("a", encoding="utf-8", newline="")

    def on_round(self, record: RoundRecord) -> None:
        """Append a row."""
        with self._writing():
            csv.writer(self._file, lineterminator="\n").writerow(_row(record))
            self._file.flush()

    def end(self, is_complete: bool) -> None:
        """Close the file."""
        self._file.close()


def _row(record: RoundRecord) -> list[Any]:
    numbers = numbers_of(record)
    return [record.round, *(numbers.get(name) for name in _COLUMNS)]


class TensorBoard(Settings, frozen=True, tag="tensorboard", tag_field="kind"):
    """Event files for TensorBoard, in ``tensorboard`` within the folder of the run. Needs ``swarmbo[tensorboard]``.

    A resumed run rewrites its event file, so that the file has each step once.
    """


class _EventWriter:
    def __init__(self) -> None:
        self._package = needed("tensorboardX", "tensorboard", "callbacks 'tensorboard'", AT)

    def begin(self, folder: Path, settings: Mapping[str, Any], earlier: Sequence[RoundRecord]) -> None:
        events = folder / EVENTS
        for old in events.glob(EVENT_FILES):
            old.unlink()
        # purge_step makes a TensorBoard that has read the old file discard the old steps
        self._writer = self._package.SummaryWriter(str(events), purge_step=0 if earlier else None)
        text = msgspec.json.format(msgspec.json.encode(settings), indent=2).decode()
        self._writer.add_text("scenario", f"```\n{text}\n```", 0)
        self._add(earlier)

    def on_round(self, record: RoundRecord) -> None:
        self._add([record])

    def _add(self, records: Sequence[RoundRecord]) -> None:
        for record in records:
            for name, value in numbers_of(record).items():
                self._writer.add_scalar(name, value, record.round)
        self._writer.flush()

    def end(self, is_complete: bool) -> None:
        self._writer.close()


class MLflow(Settings, frozen=True, tag="mlflow", tag_field="kind"):
    """A run of an MLflow experiment: settings as parameters, numbers as metrics by step. Needs ``swarmbo[mlflow]``.

    A resumed run continues the same run of MLflow, and logs the steps that are missing there.

    Args:
        tracking_uri: Address of the tracking server, or of a database (``sqlite:///mlflow.db``); by default the one of
            the environment variable ``MLFLOW_TRACKING_URI``, else MLflow's own default.
        experiment: Name of the experiment; created if missing.
    """

    tracking_uri: str | None = None
    experiment: str = "swarmbo"


class _RunTracker:
    """Writer of one run of MLflow; its id is in ``mlflow.json``."""

    def __init__(self, settings: MLflow) -> None:
        self._settings, self._package = settings, needed("mlflow", "mlflow", "callbacks 'mlflow'", AT)

    def begin(self, folder: Path, settings: Mapping[str, Any], earlier: Sequence[RoundRecord]) -> None:
        self._client = self._package.MlflowClient(tracking_uri=self._settings.tracking_uri)
        id_file = folder / MLFLOW_RUN
        if regular_file(id_file):
            self._run = str(msgspec.json.decode(read_regular(id_file), type=dict[str, str])["run"])
            self._client.update_run(self._run, status="RUNNING")
            names = self._client.get_run(self._run).data.metrics
            histories = {name: self._client.get_metric_history(self._run, name) for name in names}
            self._add(earlier, {name: {entry.step for entry in history} for name, history in histories.items()})
            return
        name = self._settings.experiment
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        name, tags = f"{settings['name']}-{settings['seed']}", {"swarmbo.folder": str(folder)}
        self._run = self._client.create_run(experiment_id, run_name=name, tags=tags).info.run_id
        with replacing(id_file) as file:
            file.write(msgspec.json.encode({"run": self._run}))
        for key, value in values.flat(settings).items():
            if value is not None:
                self._client.log_param(self._run, key, str(value)[:_LONGEST_PARAMETER])
        self._add(earlier, {})

    def on_round(self, record: RoundRecord) -> None:
        self._add([record], {})

    def _add(self, records: Sequence[RoundRecord], logged: Mapping[str, set[int]]) -> None:
        metric, now = self._package.entities.Metric, int(time.time() * 1000)
        new = [
            metric(name, float(value), now, record.round)
            for record in records
            for name, value in numbers_of(record).items()
            if record.round not in logged.get(name, ())
        ]
        for start in range(0, len(new), _METRICS_PER_CALL):
            self._client.log_batch(self._run, metrics=new[start : start + _METRICS_PER_CALL])

    def end(self, is_complete: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if is_complete else "KILLED")


def callback_settings(stated: Sequence[object]) -> tuple[Any, ...]:
    """Settings of a scenario's callbacks; a table that names user code is not converted."""
    found: list[Any] = []
    for index, callback in enumerate(stated):
        table = {"kind": callback} if isinstance(callback, str) else callback
        if not isinstance(table, TensorBoard | MLflow | Mapping):
            got = f"got {values.short(callback)}"
            raise ConfigError(f"{got}; wanted a kind of callback, or a table", at=f"{AT}[{index}]")
        is_made = not isinstance(table, Mapping) or is_user_code(table.get("kind"))
        found.append(table if is_made else convert(table, TensorBoard | MLflow, f"{AT}[{index}]"))
    return tuple(found)


def make_callbacks(settings: Sequence[Any]) -> list[Callback]:
    """Make a scenario's callbacks, ``RoundsTable`` first; the caller has checked that its user code is trusted."""
    made: list[Callback] = [RoundsTable()]
    for index, callback in enumerate(settings):
        at = f"{AT}[{index}]"
        if isinstance(callback, TensorBoard | MLflow):
            made.append(_EventWriter() if isinstance(callback, TensorBoard) else _RunTracker(callback))
            continue
        name = callback["kind"]
        keywords = {key: value for key, value in callback.items() if key != "kind"}
        instance = make(load(name, at), name, keywords, at)
        if not isinstance(instance, Callback):
            raise ConfigError(f"got {name}; wanted a class with the methods begin, on_round and end", at=at)
        made.append(instance)
    return made

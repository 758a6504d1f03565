"""Callbacks: objects that receive each round of a run, for tools such as TensorBoard and MLflow.

The log of the run is the source: a callback that begins again gets the rounds that were logged before, so that a
resumed run writes each step once.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from swarmbo.boundary.files import replacing
from swarmbo.metrics import agreement_traffic, declined, distance_travelled, total_cost
from swarmbo.records import RoundRecord
from swarmbo.runs.stored_files import ROUNDS

_SCORES = ("simple_regret", "batch_regret", "total_regret", "recommendation_regret", "map_rmse", "level_f1")


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
    """Numbers of a round by name; those that are unknown are missing.

    ``measurements``, ``failures``, ``declined``, ``cost``, ``distance``, ``messages`` and ``bytes`` are of this round
    alone.
    """
    evaluations = record.evaluations
    succeeded = sum(evaluation.measurement is not None for evaluation in evaluations)
    traffic = agreement_traffic([record]) + record.sharing
    found: dict[str, float | None] = {
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
    return {name: value for name, value in found.items() if value is not None}


_COLUMNS = ("best", "recommendation", "recommendation_std", *_SCORES)
_COLUMNS += ("measurements", "failures", "declined", "cost", "distance", "messages", "bytes")


class RoundsTable:
    """``rounds.csv``: the numbers of each round, one row a round, kept up to date."""

    def begin(self, folder: Path, settings: Mapping[str, Any], earlier: Sequence[RoundRecord]) -> None:
        """Write the earlier rounds anew, as a killed process may have left a torn row."""
        path = folder / ROUNDS
        with replacing(path) as raw:
            text = TextIOWrapper(raw, encoding="utf-8", newline="")
            csv.writer(text, lineterminator="\n").writerows([("round", *_COLUMNS), *map(_row, earlier)])
            text.flush()
            text.detach()
        self._file = path.open("a", encoding="utf-8", newline="")

    def on_round(self, record: RoundRecord) -> None:
        """Append a row."""
        csv.writer(self._file, lineterminator="\n").writerow(_row(record))
        self._file.flush()

    def end(self, is_complete: bool) -> None:
        """Close the file."""
        self._file.close()


def _row(record: RoundRecord) -> list[Any]:
    numbers = numbers_of(record)
    return [record.round, *(numbers.get(name) for name in _COLUMNS)]

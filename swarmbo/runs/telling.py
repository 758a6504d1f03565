"""Calls after each round: the callbacks of a scenario, the progress, and a function of the caller."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.records import RoundRecord
from swarmbo.runs.callbacks import Callback, make_callbacks
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.rounds import Calls, OnRound
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import SUMMARY
from swarmbo.runs.world import told_by_name


class _Observed:
    """Callbacks of a run. They begin at its first round, when the folder is there and locked."""

    def __init__(self, callbacks: Sequence[Callback], folder: Path, settings: dict[str, Any]) -> None:
        self._callbacks, self._folder, self._settings = callbacks, folder, settings
        self._begun: list[Callback] = []

    def on_round(self, record: RoundRecord, was_logged: bool) -> None:
        if not self._begun:
            logged = RunFolder.open(self._folder).records()
            self._begin(logged if was_logged else logged[: record.round])
        if not was_logged:
            for callback in self._callbacks:
                callback.on_round(record)

    def _begin(self, earlier: Sequence[RoundRecord]) -> None:
        for callback in self._callbacks:
            callback.begin(self._folder, self._settings, earlier)
            self._begun.append(callback)

    def end(self, is_complete: bool) -> None:
        # a run whose rounds were all logged, but not its summary, has no round left to begin with
        if is_complete and not self._begun:
            self._begin(RunFolder.open(self._folder).records())
        for callback in self._begun:
            callback.end(is_complete)


@contextmanager
def telling(scenario: Scenario, folder: Path, on_round: OnRound, *, progress: bool = False) -> Generator[Calls]:
    """Block with the functions to be called after each round, and after each event of workers."""
    with told_by_name(scenario):
        plain = msgspec.to_builtins(scenario)
        observed = _Observed(make_callbacks(scenario.callbacks or ()), folder, plain)
    with _shown(scenario, progress) as shown:

        def told(record: RoundRecord, was_logged: bool) -> None:
            with told_by_name(scenario):
                observed.on_round(record, was_logged)
            shown.on_round(record, was_logged)
            on_round(record, was_logged)

        try:
            yield Calls(told, shown.watch)
        except BaseException as error:
            try:
                observed.end(False)
            except Exception as other:  # noqa: BLE001  the first error is the one to be shown
                error.add_note(f"a callback failed at the end: {type(other).__name__}: {other}")
            raise
        with told_by_name(scenario):
            observed.end((folder / SUMMARY).is_file())


@contextmanager
def _shown(scenario: Scenario, progress: bool) -> Generator[Calls]:
    if not progress:
        yield Calls()
        return
    from swarmbo.runs.progress import Progress  # late: takes time to import

    with Progress(scenario.rounds, 0 if scenario.workers is None else scenario.workers.count) as shown:
        yield Calls(shown.show, shown.watch)

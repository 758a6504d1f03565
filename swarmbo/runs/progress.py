"""Hooks of a run after each round: live progress, the callbacks of a scenario, and a function of the caller."""

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import msgspec
from rich import progress as bars
from rich.console import Console
from rich.table import Column

from swarmbo.boundary.values import digits
from swarmbo.evaluations import Event, WorkerStatistics
from swarmbo.metrics import agreement_traffic, sharing_traffic
from swarmbo.records import RoundRecord, Traffic
from swarmbo.runs.callbacks import Callback, make_callbacks
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.rounds import Hooks, OnRound
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import SUMMARY
from swarmbo.runs.world import naming_user_code


class _Display:
    def __init__(self, total: int, noun: str, *, quiet: bool) -> None:
        self.total, self.noun, self.quiet = total, noun, quiet
        self._console = Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._bar_width = 24 if self._console.width > 80 else 8
        self._reference: tuple[float, int] | None = None  # time and count from which the time left is estimated
        self._min_counts = 1  # counts since then that an estimate needs
        self._bar: bars.Progress | None = None
        self._notebook_output: Any = None  # in a notebook: the output with the bar, which is updated
        if (self._console.is_terminal or self._console.is_jupyter) and not quiet:
            one_line: Any = {"table_column": Column(no_wrap=True)}
            counts = bars.SpinnerColumn(), bars.TextColumn(noun, **one_line), bars.MofNCompleteColumn(**one_line)
            remaining = bars.TimeRemainingColumn(**one_line), bars.TextColumn("left,", **one_line)
            text = bars.TextColumn("{task.description}", markup=False, **one_line)
            self._bar = bars.Progress(*counts, bars.BarColumn(self._bar_width), *remaining, text, console=self._console)
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        if self._bar is not None and self._console.is_jupyter:  # a live display of rich would need ipywidgets there
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            self._notebook_output = display(self._bar, display_id=True)
        elif self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None and self._notebook_output is None:
            self._bar.stop()

    def advance(self, count: int, text: str) -> None:
        now = time.monotonic()
        if self._bar is not None:
            others = len(f"⠋ {self.noun} {self.total}/{self.total}  0:00:00 left, ")  # columns beside the bar
            shown = _shortened(text, self._console.width - others - self._bar_width - 1)
            self._bar.update(self._task, completed=count, description=shown)
            if self._notebook_output is not None:
                self._notebook_output.update(self._bar)
        elif not self.quiet:
            left = ""
            if self._reference is not None and count >= self._reference[1] + self._min_counts:
                seconds = (now - self._reference[0]) / (count - self._reference[1]) * (self.total - count)
                left = f", {seconds:.0f} s left"
            self._console.print(f"{self.noun} {count}/{self.total}: {text}{left}")
        self._reference = self._reference or (now, count)


class Progress(_Display):
    """Progress of a run, round by round: best, scores if known, traffic, time left. A context manager.

    With workers, a round is an evaluation; counts of running and failed ones, and the workers' busy share, are shown.
    """

    def __init__(self, rounds: int, workers: int = 0, folder: Path | None = None, *, quiet: bool = False) -> None:
        super().__init__(rounds, "done" if workers else "round", quiet=quiet)
        self._folder, self._min_counts = folder, max(workers, 1)  # the folder's log has the traffic of earlier rounds
        self._shown = -1, Traffic()  # the last round, and the traffic until then
        self._standing = WorkerStatistics(workers) if workers else None
        self._last_update: tuple[int, str] = (0, "")

    def on_event(self, event: Event) -> None:
        """Take an event of workers into account; a bar shows it at once."""
        assert self._standing is not None
        self._standing.add(event)
        if event.kind != "tell" and self._bar is not None:
            self._update(*self._last_update)

    def show(self, record: RoundRecord, was_logged: bool) -> None:
        """Show one round; passed as ``on_round`` to ``run`` and ``resume``."""
        (last, traffic), new = self._shown, [record]
        if record.round != last + 1 and self._folder is not None:  # resumed from a checkpoint, or repeated
            traffic, new = Traffic(), [*RunFolder.open(self._folder).records()[: record.round], record]
        self._shown = record.round, traffic + agreement_traffic(new) + sharing_traffic(new)
        text = round_text(record, self._shown[1])
        self._last_update = record.round, f"{text}, checked against the log" if was_logged else text
        self._update(*self._last_update)
        if self._standing is not None and (was_logged or record.round == 0):
            # workers start next, which takes as long as many evaluations and would distort the estimate
            self._reference = None

    def _update(self, count: int, text: str) -> None:
        if (standing := self._standing) is not None:
            busy = standing.busy(time.time())
            share = "" if busy is None else f", busy {busy:.0%}"
            text = f"{standing.running} running, {standing.failed} failed{share}, {text}".removesuffix(", ")
        self.advance(count, text)


class SweepProgress(_Display):
    """Progress of a sweep, run by run; ``quiet`` shows failures only. A context manager."""

    def __init__(self, n_trials: int, *, quiet: bool = False) -> None:
        super().__init__(n_trials, "run", quiet=quiet)
        self._count = 0

    def show(self, status: str, out: Path, message: str = "") -> None:
        """Show one ended run: its status, its folder, and the reason of a failure."""
        self._count += 1
        self.advance(self._count, f"{status}: {out}")
        if status == "failed":
            place, message = str(out), " ".join(message.split())
            self._console.print(f"swarmbo: {message}" if message.startswith(place) else f"swarmbo: {place}: {message}")


def round_text(record: RoundRecord, traffic: Traffic) -> str:
    """State of a run after a round, in a few words."""
    best = record.best
    parts = ["no measurement yet" if best is None else f"best {digits(best.mean, best.std, 6)}"]
    if (score := record.score) is not None:
        watched = score.level_f1 is not None
        parts.append(f"F1 {score.level_f1:.3f}" if watched else f"regret {score.simple_regret:.4g}")
        if score.map_rmse is not None:
            parts.append(f"map error {score.map_rmse:.4g}")
    if record.failure is not None:
        parts.append(f"the environment failed: {record.failure}")
    if traffic.messages:
        parts.append(f"{traffic.messages} messages, {traffic.bytes / 1000:.1f} kB")
    return ", ".join(parts)


def _shortened(text: str, room: int) -> str:
    """Text shortened to ``room`` characters: parts after a comma are dropped first, from the end."""
    while len(text) > room and ", " in text:
        text = text.rpartition(", ")[0]
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


class _CallbackCalls:
    """Callbacks of a run. They begin at its first round, when the folder exists and is locked."""

    def __init__(self, callbacks: Sequence[Callback], folder: Path, settings: dict[str, Any]) -> None:
        self._callbacks, self._folder, self._settings = callbacks, folder, settings
        self._started: list[Callback] = []

    def on_round(self, record: RoundRecord, was_logged: bool) -> None:
        if not self._started:
            logged = RunFolder.open(self._folder).records()
            self._begin(logged if was_logged else logged[: record.round])
        # a run in another process may have logged this round before the log was read
        if record.round >= self._n_received:
            self._n_received = record.round + 1
            for callback in self._callbacks:
                callback.on_round(record)

    def _begin(self, earlier: Sequence[RoundRecord]) -> None:
        self._n_received = len(earlier)
        for callback in self._callbacks:
            callback.begin(self._folder, self._settings, earlier)
            self._started.append(callback)

    def end(self, is_complete: bool) -> None:
        # a run whose rounds were all logged, but not its summary, has no round left to begin with
        if is_complete and not self._started:
            self._begin(RunFolder.open(self._folder).records())
        with ExitStack() as ends:  # all are called, the first one first, even if one raises
            for callback in reversed(self._started):
                ends.callback(callback.end, is_complete)


@contextmanager
def run_hooks(scenario: Scenario, folder: Path, on_round: OnRound, *, progress: bool = False) -> Generator[Hooks]:
    """Yield the functions to call after each round and each event of workers; end the callbacks after the block."""
    with naming_user_code(scenario):
        calls = _CallbackCalls(make_callbacks(scenario.callbacks or ()), folder, msgspec.to_builtins(scenario))
    workers = 0 if scenario.workers is None else scenario.workers.count
    bar = Progress(scenario.rounds, workers, folder) if progress else None
    display = Hooks() if bar is None else Hooks(bar.show, bar.on_event)
    with bar or nullcontext():

        def call_all(record: RoundRecord, was_logged: bool) -> None:
            with naming_user_code(scenario):
                calls.on_round(record, was_logged)
            display.on_round(record, was_logged)
            on_round(record, was_logged)

        try:
            yield Hooks(call_all, display.on_event)
        except BaseException as error:
            try:
                calls.end(False)
            except Exception as other:  # noqa: BLE001  the first error is to be shown
                error.add_note(f"a callback failed at the end: {type(other).__name__}: {other}")
            raise
        with naming_user_code(scenario):
            calls.end((folder / SUMMARY).is_file())

"""The lines of a run's logs: read back as they were written, or refused where they were not."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from swarmbo.errors import RunFolderError
from swarmbo.records import RoundRecord
from swarmbo.runs.seal import read_seal


class Timing(msgspec.Struct, frozen=True):
    """Seconds that one round took, by the wall clock.

    Args:
        round: Which one.
        decide: To choose the next locations; 0 in round 0.
        measure: For the world to step.
        learn: For the belief to take the measurements in.
        record: To score and write the round down.
    """

    round: int
    decide: float
    measure: float
    learn: float
    record: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.decide + self.measure + self.learn + self.record


class LoggedLines(msgspec.Struct, frozen=True):
    """The whole lines of ``rounds.jsonl``.

    Args:
        lines: Without their line ends and digests.
        length: Bytes that they take in the file; what follows was torn.
        digest: Of the last one, which that of the next goes on from; None in a log without digests.
        damage: What is wrong with the line after them; None where they are all that was written.
    """

    lines: list[bytes]
    length: int
    digest: str | None
    damage: str | None = None


def logged_lines(text: bytes, start: str | None, path: Path) -> LoggedLines:
    """The rounds of a log, up to a line that was damaged or changed. A last line that was torn is left out.

    Args:
        text: Of the file.
        start: What the digests go on from; None for a run of an earlier version, whose lines have none.
        path: Of the file, for messages.
    """
    rows = text.split(b"\n")[:-1]
    lines, length, last, damage = list[bytes](), 0, start, None
    for number, row in enumerate(rows):
        sealed = read_seal(row, last or "")
        if sealed is not None and last is not None and not sealed.fits:
            damage = (
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it and what "
                f"follows it, and `swarmbo resume {path.parent}` measures these rounds again"
            )
            break
        line = row if sealed is None else sealed.text
        if (sealed is None) is not (last is None) or not _is_record(line, number):
            if sealed is not None or number < len(rows) - 1:  # else torn, as by a power cut: it will be measured again
                damage = f"{path}: line {number + 1} is not the record of round {number}"
            break
        lines.append(line)
        length += len(row) + 1
        last = None if sealed is None else sealed.digest
    return LoggedLines(lines, length, last, damage)


def logged_timings(text: bytes, *, sealed: bool, path: Path) -> Iterator[Timing]:
    """What ``timings.jsonl`` tells; lines that were torn are left out: they only say how long something took.

    Args:
        text: Of the file.
        sealed: Whether its lines have digests.
        path: Of the file, for messages.

    Raises:
        RunFolderError: If a line was changed.
    """
    for number, row in enumerate(text.split(b"\n")):
        found = read_seal(row)
        if sealed and found is not None and not found.fits:
            raise RunFolderError(
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it, it only says "
                "how long a round took"
            )
        if sealed and found is None:
            continue
        try:
            yield msgspec.json.decode(row, type=Timing)
        except msgspec.DecodeError:
            continue


def _is_record(line: bytes, number: int) -> bool:
    try:
        return msgspec.json.decode(line, type=RoundRecord).round == number
    except msgspec.DecodeError:  # also a ValidationError
        return False

"""A study: cells that are run once each, their recorded lines of JSON, and tables and figures of the lines.

A script defines the keys of its cells (such as method, problem and seed), how a cell is run, and its table. This module
adds the command line. Recorded cells are not run again. Every run uses one BLAS thread, because more threads would be
slower on busy cores and change last digits. ``--jobs`` starts several processes.
"""

import json
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

FOLDER = Path(__file__).parent
DOCS = FOLDER.parent / "docs"
Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """Recorded lines of a file, or of all files in a folder; empty if there is no such file."""
    if path.is_dir():
        return [line for file in sorted(path.glob("*.jsonl")) for line in read(file)]
    found = list[Line]()
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            line = json.loads(text) if text.strip() else None
        except ValueError:
            line = text
        if not isinstance(line, dict | None):
            got = repr(text.decode(errors="replace"))[:60]
            wanted = "an object of JSON. Remove the line, and the script runs its cell again"
            raise SystemExit(f"{path}, line {number}: got {got}; wanted {wanted}")
        if line is not None:
            found.append(line)
    return found


def append(path: Path, line: Line) -> None:
    """Record a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def select(lines: Iterable[Line], **values: Any) -> list[Line]:
    """Lines with the given values."""
    return [line for line in lines if all(line[key] == value for key, value in values.items())]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]], right: bool = False) -> list[str]:
    """The lines of a table.

    Args:
        head: Names of columns.
        rows: Cells.
        right: Align all columns but the first to the right.
    """
    rule = "|---|" + "--:|" * (len(head) - 1) if right else "|---" * len(head) + "|"
    return [f"| {' | '.join(head).lstrip()} |", rule, *(f"| {' | '.join(map(str, row))} |" for row in rows)]


def say(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    for line in lines:
        print(line, flush=True)  # noqa: T201


def seeds_of(text: str) -> range:
    """A range of seeds, from ``FIRST-LAST`` or one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def parser_of(doc: str | None) -> ArgumentParser:
    """A command line whose help is a script's docstring."""
    return ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)


class Round(NamedTuple):
    """Actions of a round, and the infos after the step."""

    actions: dict[str, Any]
    infos: dict[str, Any]


def play(env: Any, team: Any, seed: int) -> Iterator[Round]:
    """Play an episode and yield its rounds."""
    observations, infos = env.reset(seed=seed)
    while env.agents:
        actions = team.act(observations, infos)
        step = env.step(actions)
        team.observe(*step)
        observations, infos = step[0], step[-1]
        yield Round(actions, infos)


def between(text: str, marker: str, block: str) -> str:
    r"""A page whose text between ``<!-- marker -->`` and ``<!-- /marker -->`` is replaced.

    Raises:
        ValueError: If the page has no such pair of markers.

    Example:
        >>> between("a <!-- t --> b <!-- /t --> c", "t", "new")
        'a <!-- t -->\nnew\n<!-- /t --> c'
    """
    pattern = re.compile(rf"(<!-- {marker} -->).*?(<!-- /{marker} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"wanted one pair of markers <!-- {marker} --> and <!-- /{marker} -->")
    return pattern.sub(lambda match: f"{match[1]}\n{block}\n{match[2]}", text)


@dataclass(frozen=True)
class Study:
    """Cells of a study, the function that runs a cell, and the table of recorded lines.

    Args:
        doc: The script's docstring: help of its command line.
        file: File in this folder that records lines. A name without an ending is a folder, with a file for each
            combination of keys other than the seed.
        run: From a cell's values, in the order of ``choices``, to the rest of its line; None if a cell has no result.
        choices: Values of each key. ``seed`` has a range; a key of one value is an option with that default. Only
            listed texts are accepted, unless they are of a subclass of ``str``.
        table: Lines of Markdown, from recorded lines.
        page: Page in ``docs``, and name of the markers between which ``--page`` writes the table.
        wanted: Whether a combination of values is a cell.
        draw: Function that draws the figure of recorded lines to a path.
        figure: Name of the figure's file in ``docs/images``.
    """

    doc: str | None
    file: str
    run: Callable[..., Line | None]
    choices: Mapping[str, Sequence[Any]]
    table: Callable[[list[Line]], Iterable[str]]
    page: tuple[str, str] | None = None
    wanted: Callable[..., bool] = field(default=lambda *_: True)
    draw: Callable[[list[Line], Path], object] | None = None
    figure: str = ""

    def parser(self) -> ArgumentParser:
        """The command line."""
        parser = parser_of(self.doc)
        for key, values in self.choices.items():
            name, first = "--" + key.replace("_", "-"), values[0]
            if isinstance(values, range):
                parser.add_argument(name + "s", dest=key, type=seeds_of, default=values, help="such as 0-9")
            elif isinstance(first, bool):
                if len(values) == 1:
                    parser.add_argument(name, action="store_const", const=[not first], default=[first])
            else:
                allowed = list(values) if type(first) is str else None
                parser.add_argument(name, nargs="+", type=type(first), choices=allowed, default=list(values))
        parser.add_argument("--out", type=Path, default=FOLDER / self.file, help="where lines are recorded")
        parser.add_argument("--jobs", type=int, default=1, help="processes")
        parser.add_argument("--table", action="store_true", help="run nothing")
        if self.page:
            parser.add_argument(
                "--page", action="store_true", help=f"run nothing, put the table in docs/{self.page[0]}"
            )
        if self.draw:
            parser.add_argument("--figure", type=Path, default=DOCS / "images" / self.figure)
        return parser

    def cells(self, given: Namespace) -> Iterator[tuple[Any, ...]]:
        """Requested cells, ordered by seed."""
        keys = sorted(self.choices, key=lambda key: key != "seed")
        for values in product(*(getattr(given, key, self.choices[key]) for key in keys)):
            named = dict(zip(keys, values, strict=True))
            cell = tuple(named[key] for key in self.choices)
            if self.wanted(*cell):
                yield cell

    def work(self, cells: Iterable[tuple[Any, ...]], out: Path, jobs: int = 1) -> None:
        """Run the cells that have no line yet, and record each line when it is ready."""
        done = {tuple(line[key] for key in self.choices) for line in read(out)}
        left = [cell for cell in cells if cell not in done]

        def record(cell: tuple[Any, ...], found: Line | None) -> None:
            if found is not None:
                named = dict(zip(self.choices, cell, strict=True))
                name = ".".join(str(value) for key, value in named.items() if key != "seed")
                append(out if Path(self.file).suffix else out / f"{name}.jsonl", named | found)
            print(*cell, file=sys.stderr, flush=True)  # noqa: T201

        if jobs == 1:
            with threadpool_limits(1, user_api="blas"):
                for cell in left:
                    record(cell, self.run(*cell))
            return
        with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1, "blas")) as pool:
            running = {pool.submit(self.run, *cell): cell for cell in left}
            for ended in as_completed(running):
                record(running[ended], ended.result())

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run missing cells, draw the figure, and print the table or write it into its page."""
        given = self.parser().parse_args(arguments)
        is_page = self.page is not None and given.page
        if not given.table and not is_page:
            self.work(self.cells(given), given.out, given.jobs)
        lines = read(given.out)
        if self.draw and not given.table:
            self.draw(lines, given.figure)
        if self.page and is_page:
            path = DOCS / self.page[0]
            text = between(path.read_text(encoding="utf-8"), self.page[1], "\n" + "\n".join(self.table(lines)) + "\n")
            path.write_text(text, encoding="utf-8")
        else:
            say(self.table(lines))


def choose(studies: Mapping[str, Study]) -> None:
    """Run the study named by the first argument."""
    if (name := "".join(sys.argv[1:2])) not in studies:
        sys.exit(f"got {name or 'no study'}; wanted one of {', '.join(studies)}")
    studies[name].main(sys.argv[2:])

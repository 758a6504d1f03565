"""Imports between files have no cycles, counting late imports and those for type checkers, and are few per file."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "swarmbo", ROOT / "envs" / "swarmbo_envs")
MOST = (15, 12)  # largest recommended numbers of imported names and of their modules
STILL_OVER = 64  # number of files above these; lower it whenever a file no longer is
LARGEST = (50, 23)  # largest numbers of any file; lower them likewise


@cache
def imported() -> dict[str, frozenset[tuple[str, str]]]:
    """For each module (façades included), the modules and names that it imports from this repository."""
    files: dict[str, Path] = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {
        module: frozenset(
            (f"{source}.{name}" if f"{source}.{name}" in files else source, name)
            for source, name in statements(path)
            if source in files
        )
        for module, path in files.items()
    }


def statements(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of each import anywhere in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if "." in alias.name)


def test_imports_have_no_cycles() -> None:
    graph = {module: {source for source, _ in found} - {module} for module, found in imported().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"imports in a circle: {' -> '.join(error.args[1])}; move what both need down") from None


def test_no_more_files_than_before_have_many_imports() -> None:
    facades = {".".join(path.relative_to(p.parent).parts[:-1]) for p in PACKAGES for path in p.rglob("__init__.py")}
    over = {}
    for module, found in imported().items():
        counts = len(found), len({source for source, _ in found})
        if module not in facades and module.count(".") > 1 and (counts[0] > MOST[0] or counts[1] > MOST[1]):
            over[module] = counts
    assert len(over) <= STILL_OVER, f"{len(over)} files import more than {MOST} names and modules; wanted no more"
    assert all(got <= most for counts in over.values() for got, most in zip(counts, LARGEST, strict=True)), over

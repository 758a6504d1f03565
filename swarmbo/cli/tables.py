"""Problems in tables as commands take them: a file or an example, and settings of its method and its transport."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError
from swarmbo.interchange import TableProblem, read_problem
from swarmbo.interchange.files import FORMATS
from swarmbo.runs.scenario_files import find, parse_override


def is_in_tables(source: str) -> bool:
    """True if a source is a problem in tables, not a scenario."""
    ending = Path(source).suffix.lower()
    return ending in FORMATS or not (ending or find(source) or find(source, ".yaml") is None)


def table_problem(
    file: str, overrides: list[str] | None, options: Mapping[str, Any]
) -> tuple[TableProblem, dict[str, Any], dict[str, Any]]:
    """Problem of a file or an example, settings of its method (also from ``options``), and of its transport."""
    settings, transport = dict[str, Any](), dict[str, Any]()
    for path, value in map(parse_override, overrides or []):
        table = transport if path[0] == "transport" else settings
        key = ".".join(path[1:] if path[0] in ("transport", "coordination") else path)
        table |= {key: value} if key or not isinstance(value, dict) else value
    for key, value in options.items():
        if value is not None and settings.setdefault(key, value) != value:
            raise ConfigError(f"got {settings[key]!r}, and {value!r} as an option; wanted one", at=f"--set {key}")
    settings.setdefault("kind", "max-sum")
    example = None if Path(file).suffix else find(file, ".yaml")
    return read_problem(example or file), settings, transport

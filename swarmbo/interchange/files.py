"""Reading and writing of problem files, in the formats of their endings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from swarmbo.boundary.files import open_regular, replacing
from swarmbo.boundary.values import located
from swarmbo.errors import ConfigError
from swarmbo.interchange.networks import problem_of_uai, problem_of_wcsp, uai_of_problem, wcsp_of_problem
from swarmbo.interchange.problem import TableProblem
from swarmbo.interchange.pydcop import problem_of_yaml, yaml_of_problem


class _Format(NamedTuple):
    read: Callable[[str, str], TableProblem]
    write: Callable[[TableProblem], str]
    most_bytes: int


_YAML = _Format(problem_of_yaml, yaml_of_problem, 2**22)  # nodes of YAML take some 200 times the memory of their text
_UAI = _Format(problem_of_uai, uai_of_problem, 2**24)
_WCSP = _Format(problem_of_wcsp, wcsp_of_problem, 2**24)
FORMATS = {".yaml": _YAML, ".yml": _YAML, ".uai": _UAI, ".wcsp": _WCSP}


def read_problem(path: str | os.PathLike[str]) -> TableProblem:
    """Read a problem from a file: ``.yaml`` or ``.yml`` in pyDCOP's format, ``.uai`` of UAI's competitions,
    ``.wcsp`` of weighted constraint networks.

    No code in a file is run. Sizes are checked before tables are made.

    Returns:
        The problem, to be maximised: ``sb.MaxSum().solve(problem.graph, problem.tables)``.

    Raises:
        ConfigError: If the file has another format, is too large, or is wrong; the message has the path within it.
        MissingPackageError: If a YAML file is read without the extra ``dcop``.
        OSError: If it cannot be read.
    """
    path = Path(path)
    file_format = _format_of(path)
    with open_regular(path) as file:
        data = file.read(file_format.most_bytes + 1)
    if len(data) > file_format.most_bytes:
        raise ConfigError(f"got a file of more than {file_format.most_bytes:,} bytes; wanted fewer", at=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"got a byte at position {error.start} that is not UTF-8 text"
        raise ConfigError(f"{got}; wanted a text file", at=str(path)) from None
    with located(path):
        return file_format.read(text, path.stem)


def write_problem(problem: TableProblem, path: str | os.PathLike[str]) -> Path:
    """Write a problem, completely or not at all, in the format of the name's ending.

    In pyDCOP's YAML all constraints are extensional, and distribution hints name the owners. The other formats have no
    names. UAI's divides a factor by its largest entry. WCSP's may shift all costs, and the problem's name then states
    the shift. Best choices stay the same, in UAI's format up to rounding by 1e-6 of a factor's spread.

    Raises:
        ConfigError: If the ending is unknown, or the format cannot hold the problem, or would round it more.
        MissingPackageError: If a YAML file is written without the extra ``dcop``.
    """
    path = Path(path)
    text = _format_of(path).write(problem)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def _format_of(path: Path) -> _Format:
    if (found := FORMATS.get(path.suffix.lower())) is None:
        wanted = f"wanted {', '.join(FORMATS)}: pyDCOP's YAML, UAI's or WCSP's; `swarmbo run` takes scenarios"
        raise ConfigError(f"got the ending {path.suffix!r}; {wanted}", at=str(path))
    return found

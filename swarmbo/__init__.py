"""swarmbo: agents in simulated worlds agree by message passing on where to measure next.

The public names are listed in ``__init__.pyi``, where type checkers read them. They are loaded when they are first
used, so that ``import swarmbo`` stays quick.
"""

import functools
from importlib import import_module

__version__ = "0.1.0"


@functools.cache
def homes() -> dict[str, str]:
    """Module from which each public name is loaded: what ``__init__.pyi`` imports."""
    import ast  # late, like the names' modules: most programs need only a name or two

    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as listed:
        statements = ast.parse(listed.read()).body
    imports = [statement for statement in statements if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


def __getattr__(name: str) -> object:
    if name.startswith("_") or name not in homes():
        raise AttributeError(f"module 'swarmbo' has no attribute {name!r}")
    home = homes()[name]
    value = import_module(f"swarmbo.{name}") if home == "swarmbo" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*homes(), "__version__"])

"""Modules that need an extra are left out of the doctests where it is not installed."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

NEEDS = {
    "swarmbo/integrations/optuna.py": ["optuna"],
    "swarmbo/baselines/peers.py": ["ax", "botorch", "cma", "optuna"],
    "swarmbo/baselines/turbo.py": ["gpytorch"],
}
collect_ignore = [path for path, packages in NEEDS.items() if not all(map(find_spec, packages))]


def pytest_collect_file(file_path: Path) -> None:
    """Import a module of the library by its name: pytest alone imports it twice if its package imports it, too."""
    parts = file_path.relative_to(Path(__file__).parent).with_suffix("").parts
    if parts[0] == "swarmbo" and file_path.suffix == ".py" and parts[-1] != "__main__":
        import_module(".".join(part for part in parts if part != "__init__"))

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import swarmbo as sb


def stated_imports():
    """Names that type checkers see, and the modules they come from."""
    tree = ast.parse(Path(sb.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.asname: node.module for node in block.body for alias in node.names}


def test_what_type_checkers_see_is_what_is_loaded():
    public = {name for name in dir(sb) if name != "__version__"}
    assert public == set(stated_imports())
    rooms = dict.fromkeys(sb._ROOMS, "swarmbo")
    assert {name: f"swarmbo.{home}" for name, home in sb._HOME.items()} | rooms == stated_imports()


@pytest.mark.parametrize("name", sorted(stated_imports()))
def test_every_public_name_loads_and_has_a_docstring(name):
    assert getattr(sb, name).__doc__


@pytest.mark.parametrize("name", sorted(set(stated_imports()) - set(sb._ROOMS)))
def test_every_public_name_has_an_example_of_its_own(name):
    assert ">>>" in (getattr(sb, name).__doc__ or "")


def test_importing_the_package_loads_none_of_its_rooms():
    loaded = "[m for m in sys.modules if m.startswith(('swarmbo.', 'numpy', 'scipy', 'networkx'))]"
    code = f"import swarmbo, sys; print({loaded})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

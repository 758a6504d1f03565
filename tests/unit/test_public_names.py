import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import swarmbo as sb
from swarmbo.registry import SLOTS, kinds

STUB = Path(sb.__file__).with_suffix(".pyi")
NAMES = sorted(sb.homes())


def test_every_public_name_is_listed_once_in_the_stub():
    imports = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    listed = Counter(alias.asname for node in imports for alias in node.names)
    assert set(listed.values()) == {1}
    assert set(listed) == {name for name in dir(sb) if name != "__version__"}


def test_the_package_file_does_not_list_them():
    source = Path(sb.__file__).read_text(encoding="utf-8")
    assert [name for name in NAMES if name in source] == []


def test_every_public_name_loads_and_has_a_docstring_with_an_example():
    assert not [name for name in NAMES if not getattr(sb, name).__doc__]
    own = [name for name in NAMES if sb.homes()[name] != "swarmbo"]
    assert not [name for name in own if ">>>" not in getattr(sb, name).__doc__]


@pytest.mark.parametrize("name", ["Tean", "_homes", "homes_", "__path"])
def test_names_that_are_not_public_are_refused(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(sb, name)


def test_every_kind_is_public():
    public = {getattr(sb, name) for name in NAMES}
    assert all(settings in public for slot in SLOTS for settings in kinds(slot).values())


def test_importing_the_package_loads_no_subpackage_or_numpy():
    loaded = "[m for m in sys.modules if m.startswith(('swarmbo.', 'numpy', 'scipy', 'networkx', 'ast', 'typing'))]"
    code = f"import sys; before = set(sys.modules); import swarmbo; print(set({loaded}) - before)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"

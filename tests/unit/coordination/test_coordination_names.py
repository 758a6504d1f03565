"""What the room exports hides none of its modules."""

import importlib
import pkgutil

from swarmbo import coordination


def test_no_function_is_named_like_a_module() -> None:
    names = [module.name for module in pkgutil.iter_modules(coordination.__path__)]
    assert "decoding" in names
    for name in names:
        assert importlib.import_module(f"swarmbo.coordination.{name}") is getattr(coordination, name)

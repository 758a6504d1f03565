"""The worlds that a scenario can name: PettingZoo's registry, and the plug-ins that fill it."""

import functools
import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import pettingzoo
from pettingzoo.env_registry.exceptions import PettingZooRegistryError

from swarmbo.deciding.setup import DEFAULT_KINDS
from swarmbo.registry import FIELD, FUNCTION, Team
from swarmbo.registry.own_code import is_own, load

ENTRY_POINT_GROUP = "swarmbo.envs"

Environment = Any  # a PettingZoo ParallelEnv; PettingZoo ships no types


@functools.cache
def load_plug_ins() -> dict[str, str]:
    """Let every installed plug-in register its environments, once a process.

    A plug-in is an entry point of the group ``swarmbo.envs``: a callable without arguments that calls
    ``pettingzoo.register``.

    Returns:
        Why plug-ins failed, by name; empty if all is well. One broken plug-in does not stop the others.
    """
    failures: dict[str, str] = {}
    for plug_in in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plug_in.load()()
        except Exception as error:  # noqa: BLE001  whatever a stranger's code raises is reported under its name
            failures[plug_in.name] = f"{type(error).__name__}: {error}"
    return failures


def environment_ids() -> list[str]:
    """Ids of all parallel environments that can be named, those of plug-ins included."""
    load_plug_ins()
    return sorted(pettingzoo.parallel_registry)


def plug_in_ids() -> list[str]:
    """Ids of the environments that plug-ins brought: PettingZoo's own are games, without measurements."""
    ids = environment_ids()
    entries = {identifier: str(pettingzoo.parallel_registry[identifier].entry_point) for identifier in ids}
    return [identifier for identifier in ids if not entries[identifier].startswith("pettingzoo.")]


def default_kinds(identifier: object, trust: bool = False) -> Mapping[str, str]:
    """The kinds that a team is made of in a world, where a scenario does not say.

    Args:
        identifier: Id of a registered parallel environment. If the class that it names has ``factor_graph``, its agents
            set the variables of one function. Of anything else that is not known before the world is made: there the
            kinds of a team in a field are taken, and a world that they do not fit says so.
        trust: Whether a class of a user's own may be loaded to look at it.

    Example:
        >>> default_kinds("swarmbo/function-v0")["belief"], default_kinds("swarmbo/robot_team-v0")["belief"]
        ('additive', 'exact')
    """
    return DEFAULT_KINDS[team_in(identifier, trust)]


def team_in(identifier: object, trust: bool = False) -> Team:
    """The kind of team that a world is for; the arguments are those of ``default_kinds``."""
    return FUNCTION if hasattr(_maker(identifier, trust), "factor_graph") else FIELD


def settings_in(identifier: object) -> list[str]:
    """The settings of a world, as far as its maker names them; a user's own is not asked."""
    maker = _maker(identifier)
    if maker is None:
        return []
    parameters = inspect.signature(maker).parameters.values()
    if any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters):
        return []
    return [one.name for one in parameters if one.name != "max_cycles"]


def is_filmed(identifier: object) -> bool:
    """Whether a world can set the scenes of earlier rounds, to draw them; a user's own is not asked."""
    return hasattr(_maker(identifier), "replay")


def has_scene(identifier: object) -> bool:
    """Whether a world may draw itself in three dimensions; a user's own is not asked."""
    return hasattr(_maker(identifier), "scene")


def _maker(identifier: object, trust: bool = False) -> Any:
    """What makes an environment; None if that can't be told, of which ``make_environment`` gives the reason."""
    if not isinstance(identifier, str):
        return None
    if is_own(identifier):
        return load(identifier, "$.environment.id") if trust else None
    load_plug_ins()
    try:
        maker = pettingzoo.spec("parallel", identifier).entry_point
        if isinstance(maker, str):
            module, _, name = maker.partition(":")
            maker = getattr(import_module(module), name)
    except (PettingZooRegistryError, ImportError, AttributeError):
        return None
    return maker

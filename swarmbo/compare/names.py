"""Names for the methods and the problems of a comparison: short, and each a name of its own."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

ProblemKey = tuple[str, str]  # environment table and rounds as JSON, name of the scenario

_Tables = Mapping[str, Mapping[str, Any]]
_ABSENT = object()


def method_labels(
    methods: Sequence[Mapping[str, Mapping[str, Any]]], problems: Sequence[Hashable] | None = None
) -> list[str]:
    """Short names that tell methods apart: the kinds in which they differ, and the settings in which one kind does.

    Methods that differ in nothing are called by how they agree.

    Args:
        methods: For each run its method tables.
        problems: For each run its problem. What differs only between problems is theirs, and not told. By default
            all are on one.

    Example:
        >>> method_labels([{"coordination": {"kind": "exact"}}, {"coordination": {"kind": "max-sum", "rounds": 5}},
        ...                {"coordination": {"kind": "max-sum", "rounds": 9}}])
        ['exact', 'max-sum (rounds=5)', 'max-sum (rounds=9)']
    """
    flat = [{table: _flat(settings) for table, settings in method.items()} for method in methods]
    groups: dict[Hashable, list[_Tables]] = {}
    for method, problem in zip(flat, problems or [None] * len(flat), strict=True):
        groups.setdefault(problem, []).append(method)
    side_by_side = list(groups.values())
    return [
        ", ".join(filter(None, (_table_label(method, side_by_side, table) for table in method))) or _kind(method)
        for method in flat
    ]


def problem_names(problems: Sequence[tuple[ProblemKey, str]]) -> dict[ProblemKey, str]:
    """A name for each problem: its scenario's, and where that is not enough its world's, or the settings that differ.

    Args:
        problems: For each run its problem, and the name of its world.

    Example:
        >>> swept = [(f'[{{"robots": {number}}}, 25]', "robots") for number in (2, 3)]
        >>> list(problem_names([(problem, "hills") for problem in swept]).values())
        ['robots (robots=2)', 'robots (robots=3)']
    """
    worlds = dict(problems)
    names: dict[ProblemKey, str] = {}
    for problem, world in worlds.items():
        scenario = problem[1]
        twins = [other for other in worlds if other[1] == scenario]
        if len(twins) == 1:
            names[problem] = scenario
        elif len({worlds[twin] for twin in twins}) == len(twins):
            names[problem] = f"{scenario}: {world}"
        else:
            names[problem] = f"{scenario} ({_differing(_settings(problem), [_settings(twin) for twin in twins])})"
    return names


def _settings(problem: ProblemKey) -> dict[str, Any]:
    environment, rounds = msgspec.json.decode(problem[0])
    return {**_flat(environment), "rounds": rounds}


def _differing(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The settings of one of several in which any two of them differ."""
    keys = dict.fromkeys([*own, *(key for other in others for key in other)])
    differ = [key for key in keys if any(other.get(key, _ABSENT) != own.get(key, _ABSENT) for other in others)]
    return ", ".join(f"{key}={own[key]}" if key in own else f"{key} by default" for key in differ)


def _flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings of tables within tables by their dotted path."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) and value else {f"{path}{key}": value}
    return found


def _kind(method: _Tables) -> str:
    return str(method.get("coordination", {}).get("kind", "all"))


def _table_label(method: _Tables, side_by_side: Sequence[Sequence[_Tables]], table: str) -> str:
    own, kind = method[table], method[table].get("kind")
    kinds_differ = any(len({other[table].get("kind") for other in group}) > 1 for group in side_by_side)
    twins = [[other[table] for other in group if other[table].get("kind") == kind] for group in side_by_side]
    differing = [
        key
        for key in own
        if key != "kind"
        and any(twin.get(key, _ABSENT) != group[0].get(key, _ABSENT) for group in twins for twin in group)
    ]
    settings = ", ".join(f"{key}={own[key]}" for key in differing)
    if kinds_differ:
        return f"{kind} ({settings})" if settings else str(kind)
    return f"{table} {settings}" if settings else ""

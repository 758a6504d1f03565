"""Tasks of fields and aims of acquisitions in words, and a warning if they differ."""

import warnings

from swarmbo.acquisition import Auto
from swarmbo.deciding.places import weighs_nothing
from swarmbo.deciding.setup import Setup, to_plain
from swarmbo.errors import AimWarning
from swarmbo.records import Goal
from swarmbo.registry import name_of

_IN_WORDS: dict[Goal, str] = {"peak": "the peak", "map": "a map", "level": "a level"}


def acquisition_in_words(setup: Setup) -> str:
    """Kind of a team's acquisition; if that chooses another kind, also the choice and its reason.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], aim="map")
        >>> acquisition_in_words(team.setup)
        'targeted-variance (auto: for a map)'
    """
    stated, problem = str(to_plain(setup.acquisition)["kind"]), setup.problem
    if not setup.chooses:
        return stated
    priced = ", as agents may decline" if problem.priced and problem.aim != "peak" else ""
    return f"{name_of(setup.rule())} ({stated}: for {_IN_WORDS[problem.aim]}{priced})"


def warn_of_aim(setup: Setup, stated: Goal | None) -> None:
    """Warn of an acquisition with another aim than the stated task; never for a method without an aim."""
    sought = setup.rule().aim(setup.problem.level)
    if stated is None or sought in (None, stated) or weighs_nothing(setup.coordination):
        return
    wanted = "a world that says so by an attribute `task`"
    if not setup.chooses:
        wanted = f"{name_of(Auto().in_field(stated, priced=setup.problem.priced))!r}, which is taken if it is left out"
    warnings.warn(
        f"$.acquisition.kind: got {to_plain(setup.acquisition)['kind']!r}, which looks for {_IN_WORDS[sought]}, where "
        f"the task is {_IN_WORDS[stated]}; wanted {wanted}",
        AimWarning,
        stacklevel=3,
    )

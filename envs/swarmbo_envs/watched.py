"""What a field is watched for, as worlds over fields are told it."""

from typing import Literal, Protocol

from swarmbo.settings import require

Task = Literal["peak", "map", "level"]


class Watched(Protocol):
    """Settings that say what a field is watched for."""

    @property
    def task(self) -> Task:
        """Its maximum, all of it, or where it exceeds a level."""
        ...

    @property
    def level(self) -> float | None:
        """That level, in the unit of the field."""
        ...


def require_level(settings: Watched) -> None:
    """Refuse a level without the task, and the task without a level; call it from ``__post_init__``."""
    if settings.task == "level":
        require(settings, "level", lambda value: value is not None, "the level that is watched, for the task 'level'")
    else:
        require(settings, "level", lambda value: value is None, "no level, or the task 'level'")

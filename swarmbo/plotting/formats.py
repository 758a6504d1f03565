"""What figures and animations are written as."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from swarmbo.errors import ConfigError
from swarmbo.plotting.frames import encoder

FigureFormat = Literal["png", "pdf", "svg"]
AnimationFormat = Literal["gif", "mp4"]
FIGURE_FORMATS: tuple[FigureFormat, ...] = get_args(FigureFormat)
ANIMATION_FORMATS: tuple[AnimationFormat, ...] = get_args(AnimationFormat)
LEAST_DPI, MOST_DPI = 20, 1200


@dataclass(frozen=True)
class Formats:
    """What figures and animations are written as.

    Args:
        figures: File format of figures. In ``pdf`` and ``svg`` maps are pictures, all else is lines and letters.
        animation: File format of animations; ``mp4`` needs an encoder.
        dpi: Dots per inch of figures, and of maps in them, 20 to 1200. Animations have sizes of their own.

    Raises:
        ConfigError: If there is no such format, no encoder for it, or the number of dots is out of range.

    Example:
        >>> Formats.of(["pdf"], dpi=300)
        Formats(figures='pdf', animation='gif', dpi=300)
    """

    figures: FigureFormat = "png"
    animation: AnimationFormat = "gif"
    dpi: int = 150

    def __post_init__(self) -> None:
        if not LEAST_DPI <= self.dpi <= MOST_DPI:
            raise ConfigError(f"got {self.dpi}; wanted {LEAST_DPI} to {MOST_DPI} dots per inch", at="--dpi")
        if self.animation == "mp4":
            encoder()

    @classmethod
    def of(cls, names: Sequence[str] = (), dpi: int | None = None) -> "Formats":
        """Formats by name, at most one of figures and one of animations; what is not said is as by default.

        Raises:
            ConfigError: As the class; and if two names are of one sort.
        """
        figures: list[FigureFormat] = [name for name in FIGURE_FORMATS if name in names]
        animations: list[AnimationFormat] = [name for name in ANIMATION_FORMATS if name in names]
        known = ", ".join([*FIGURE_FORMATS, *ANIMATION_FORMATS])
        if strangers := [name for name in names if name not in FIGURE_FORMATS and name not in ANIMATION_FORMATS]:
            raise ConfigError(f"got {strangers[0]!r}; wanted one of {known}", at="--format")
        for same in (figures, animations):
            if len(same) > 1:
                raise ConfigError(f"got {' and '.join(same)}; wanted one of them", at="--format")
        return cls(
            figures[0] if figures else cls.figures,
            animations[0] if animations else cls.animation,
            cls.dpi if dpi is None else dpi,
        )

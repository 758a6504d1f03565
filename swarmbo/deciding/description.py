"""What a team is, in words: for ``repr`` and for notebooks."""

from typing import TYPE_CHECKING

import numpy as np

from swarmbo.deciding.aims import acquisition_in_words
from swarmbo.deciding.setup import to_plain

if TYPE_CHECKING:
    from swarmbo.deciding.held import Held


def title_of(team: "Held") -> str:
    """What the team works on."""
    problem, n_agents = team.problem, counted(len(team.agents), "agent")
    if problem.is_field:
        return f"Team of {n_agents} in a field with {counted(problem.box.n_dims, 'coordinate')}"
    known = counted(len(problem.channels), "factor") if problem.structure == "known" else "unknown structure"
    told = "outcomes by factor" if problem.outcomes == "per-factor" else "totals"
    return f"Team of {n_agents} for a function of {counted(problem.domain.n_dims, 'variable')}, {known}, {told}"


def rows_of(team: "Held") -> list[tuple[str, str]]:
    """How far it is, what it is made of, and the best outcome so far: labels and texts. Nothing is worked out."""
    kinds = ("belief", "acquisition", "coordination", "transport")
    parts = (team.belief_settings, team.acquisition, team.coordination, team.transport)
    planned = "" if team.horizon is None else f" of {team.horizon}"
    noun = "measurement" if team.problem.is_field else "evaluation"
    told = f"{counted(team.n_data, noun)}, {team.failures} failed, {len(team.pending)} pending"
    rows = [("data", told), ("round", f"{team.round}{planned}")]
    named = {kind: str(to_plain(part)["kind"]) for kind, part in zip(kinds, parts, strict=True)}
    rows += (named | {"acquisition": acquisition_in_words(team.setup)}).items()
    rows.append(("seed", str(team.seed)))
    return rows + _best(team)


def _best(team: "Held") -> list[tuple[str, str]]:
    data, problem = team.history, team.problem
    values = data.factors if problem.is_field else data.with_sums().totals[:, None]
    if not np.isfinite(values).any():
        return []
    row, channel = np.unravel_index(int(np.nanargmax(values)), values.shape)
    point = problem.named(data.X[row])
    if problem.is_field:
        place = problem.places_of(point)[problem.channels[channel]]
        where = f"({', '.join(f'{x:.6g}' for x in place)})"
    else:
        where = ", ".join(f"{name} = {value:.6g}" for name, value in list(point.items())[:6])
        where += f", … {len(point)} variables" if len(point) > 6 else ""
    return [("best outcome", f"{values[row, channel]:.6g} at {where}")]


def counted(number: int, noun: str) -> str:
    """A number and what it counts.

    Example:
        >>> counted(1, "agent"), counted(2, "agent")
        ('1 agent', '2 agents')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""Final summary of a run, and its closing table."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from rich.table import Table

from swarmbo import metrics
from swarmbo.boundary.coordinates import Coordinates
from swarmbo.boundary.values import counted, digits, html_table, short
from swarmbo.records import TRUE_MAXIMUM, Goal, LinkReport, Neglected, Recommendation, Score, Traffic
from swarmbo.runs.states import ScopeInUse

CENTRALISED = "one Gaussian process for all"
THIS_RUN = "this run"
MOST_COORDINATES = 24
_MOST_SCOPES = 12


class WorkersReport(msgspec.Struct, frozen=True):
    """Workers of a run: wall time without pauses (s), their busy share of it (0 to 1), and lost or hung evaluations."""

    count: int
    mode: str
    wall_s: float
    busy: float
    lost: int


class Summary(msgspec.Struct, frozen=True):
    """Final summary of a run, written last: a folder with it is complete.

    ``rounds`` counts the rounds after the reset, fewer than the scenario's if the world ended early. ``measurements``
    includes those at reset, and counts a joint point once. ``at_reset`` also counts those that failed. ``mean_regret``
    is the mean over chosen measurements with a known true value. ``maximum`` and ``score`` need a ground truth; of a
    changing field, they are those of the last round. ``agreement`` and ``sharing`` are traffic. ``seconds`` is the time
    of all rounds, with workers the wall time. ``source`` is what the sources of all rounds have in common.
    ``references`` are the best true values of heuristic baselines within as many rounds; ``worst_off`` are least
    individual outcomes at the best points of this run and of the baselines. ``late_mean`` is the mean joint outcome in
    the last quarter of rounds. ``scopes`` were learned or drawn. In ``blocked`` rounds, agents awaited a disconnected
    agent. ``acquisition`` is what ``auto`` selected, and why. ``coordinates`` are those of the input, if they are not
    the map's. ``sides`` are those of the box of locations or variables, at most as many as the closing table shows.
    """

    name: str
    seed: int
    rounds: int
    measurements: int
    failures: int
    best: Recommendation | None
    recommendation: Recommendation | None
    score: Score | None
    mean_regret: float | None
    maximum: float | None
    distance: dict[str, float]
    agreement: Traffic
    sharing: Traffic
    seconds: float
    unit: str
    axis_unit: str
    is_joint: bool = False
    references: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    source: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    declined: int = 0
    cost: float = 0.0
    late_mean: float | None = None
    late_rounds: int = 0
    scopes: list[ScopeInUse] = []
    goal: Goal = "peak"
    moves: bool = False
    metrics: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    failed_rounds: int = 0
    at_reset: int | UnsetType = UNSET
    maximum_is: str = TRUE_MAXIMUM
    best_round: int | None = None
    worst_off: dict[str, dict[str, float]] = msgspec.field(default_factory=dict[str, dict[str, float]])
    links: LinkReport | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    sharing_links: LinkReport | UnsetType = UNSET
    acquisition: str | UnsetType = UNSET
    workers: WorkersReport | UnsetType = UNSET
    coordinates: Coordinates | UnsetType = UNSET
    neglected: Neglected | UnsetType = UNSET
    sides: list[float] = []

    def _repr_html_(self) -> str:
        """Closing table, for notebooks."""
        return html_table(f"{self.name}, seed {self.seed}", report_rows(self))


def report_rows(summary: Summary) -> list[tuple[str, str]]:
    """Rows of the closing table of a run, each a label and a text."""
    is_whole = summary.best is not None or summary.recommendation is None
    best = _point_text(summary, summary.best, with_std=False) + _best_round_text(summary)
    source = {key: ", ".join(text) if isinstance(text, list) else text for key, text in summary.source.items()}
    texts = {
        "measured": ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in source.items()),
        "best measurement": best if is_whole else "none: in every round some factor failed",
        "recommendation": _point_text(summary, summary.recommendation, with_std=True),
        **_score_rows(summary),
        **{name: quantity(value, "") for name, value in summary.worst_off.get(THIS_RUN, {}).items()},
        **_count_rows(summary),
        "map": str(summary.neglected or ""),
        "acquisition": summary.acquisition or "",
        "rounds failed by the environment": str(summary.failed_rounds or ""),
        "scopes in use at the end": _scopes_text(summary.scopes),
        "messages to agree": traffic_text(summary.agreement),
        "messages to share": traffic_text(summary.sharing),
        **_link_rows(summary),
        **_time_rows(summary),
    }
    return [(label, text) for label, text in texts.items() if text]


def _count_rows(summary: Summary) -> dict[str, str]:
    failed = f", {summary.failures} failed" if summary.failures else ""
    count = f"{summary.measurements} in {counted(summary.rounds, 'round')}"
    if summary.is_joint:
        return {"evaluations": f"{count}{failed}"}
    declined, travelled = summary.declined, sum(summary.distance.values())
    return {
        "measurements": f"{count}{' and at reset' if summary.at_reset is UNSET or summary.at_reset else ''}{failed}",
        "measurements not made": f"{declined}: agents abstained or were absent" if declined else "",
        "distance travelled": quantity(travelled, summary.axis_unit) if travelled else "",
        "cost": quantity(summary.cost, summary.unit) if summary.cost else "",
    }


def _time_rows(summary: Summary) -> dict[str, str]:
    workers = summary.workers
    if not isinstance(workers, WorkersReport):
        return {"time in rounds": f"{summary.seconds:.1f} s"}
    lost = f", {counted(workers.lost, 'evaluation')} lost" if workers.lost else ""
    rate = f", {quantity(summary.rounds / summary.seconds, 'evaluations a second')}" if summary.seconds else ""
    return {
        "wall time": f"{summary.seconds:.1f} s{rate}",
        "workers": f"{workers.count}, {workers.mode}, busy {workers.busy:.0%}{lost}",
    }


def _link_rows(summary: Summary) -> dict[str, str]:
    """Texts about links by label, if links may have faults or agents have deadlines."""
    links, lost = summary.links, list[str]()
    for purpose, report in (("agree", links), ("share", summary.sharing_links)):
        if isinstance(report, LinkReport) and (total := report.total).messages:
            age = "" if math.isnan(total.age) else f", mean age of the others {total.age:.2g} ticks"
            lost.append(f"{total.lost / total.messages:.0%} of those to {purpose}{age}")
    if not isinstance(links, LinkReport):
        return {"messages lost": "; ".join(lost)}
    repeated = f"; {_bytes_text(links.repeated)} for repeats and acknowledgements" if links.repeated else ""
    senders = ", ".join(f"{agent} ({count})" for agent, count in links.dropped.items())
    return {
        "messages lost": "; ".join(lost),
        "time to agree": f"{links.ticks:,} ticks{repeated}",
        "agents failed or silent": ", ".join(links.silent),
        "messages with inadmissible content, dropped, by sender": senders,
        "agents without a choice": ", ".join(links.without),
        "rounds blocked": str(summary.blocked or ""),
        "conflicting choices": str(links.clashes or "none"),
    }


def _score_rows(summary: Summary) -> dict[str, str]:
    unit, score, texts = summary.unit, summary.score, dict[str, str]()
    last_round = ", last round" if summary.moves else ""
    if summary.maximum is not None:
        texts[f"{summary.maximum_is}{last_round}"] = quantity(summary.maximum, unit, _std(summary))
    elif summary.late_mean is not None:
        texts[f"mean of the last {counted(summary.late_rounds, 'round')}"] = quantity(summary.late_mean, unit)
    if score is None:
        return texts
    if summary.goal == "peak":
        texts[f"simple regret{last_round}"] = quantity(score.simple_regret, unit)
        if score.recommendation_regret is not None:
            texts[f"regret at the recommendation{last_round}"] = quantity(score.recommendation_regret, unit)
            texts["regret at the recommendations, summed over rounds"] = quantity(score.recommended_so_far, unit)
    if score.level_f1 is not None:
        texts[f"F1 of the area above the level{last_round}"] = f"{score.level_f1:.3f}"
    if score.map_rmse is not None:
        label, text = "map RMSE", quantity(score.map_rmse, unit)
        if by_agent := score.view_rmse:
            low, high = (quantity(edge(by_agent.values()), unit) for edge in (min, max))
            text = f"{low} each" if low == high else f"{low} to {high}; with the most data {text}"
            label = f"map RMSE of {len(by_agent)} agents"
        texts[f"{label}{last_round}"] = text
    for metric in metrics.METRICS:
        if metric.endswith("_over_rounds") and metric in summary.metrics:
            value, label = summary.metrics[metric], metrics.METRIC_TEXT[metric]
            texts[label] = f"{value:.3f}" if metric in metrics.MORE_IS_BETTER else quantity(value, unit)
    return texts


def _best_round_text(summary: Summary) -> str:
    """Round of the best measurement, and a note if noise lifts it above the maximum."""
    if summary.best is None or summary.best_round is None:
        return ""
    text = f", in round {summary.best_round}" if summary.best_round else ", at reset"
    if summary.maximum is None or summary.moves or summary.maximum_is != TRUE_MAXIMUM:
        return text
    is_lifted = summary.best.mean > summary.maximum + 1e-9 * max(1.0, abs(summary.maximum))
    return f"{text} (noise lifts it above the {summary.maximum_is})" if is_lifted else text


def report_table(summary: Summary) -> Table:
    """Closing table for a terminal."""
    table = Table(title=f"{summary.name}, seed {summary.seed}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, text in report_rows(summary):
        table.add_row(label, text)
    return table


def reference_table(summary: Summary) -> Table | None:
    """Table of the values (true if known) of this run and of baselines in as many rounds; None without baselines."""
    if not summary.references:
        return None
    best, maximum = None if summary.best is None else summary.best.mean, summary.maximum
    if maximum is not None and summary.score is not None:
        best = maximum - summary.score.simple_regret
    values = summary.references if best is None else {THIS_RUN: best, **summary.references}
    # a share of a logarithm has no meaning
    is_share = maximum is not None and min(values.values()) >= 0.0 < maximum and not summary.unit.startswith("ln")
    least = list(dict.fromkeys(key for worst in summary.worst_off.values() for key in worst))
    table = Table(title=f"found within {counted(summary.rounds, 'round')}", title_justify="left")
    table.add_column("method", overflow="fold")
    relation = "of the reference optimum" if is_share else "below the reference optimum"
    for heading in (summary.unit or "value", *([] if maximum is None else [relation]), *least):
        table.add_column(heading, justify="right")
    for label, value in sorted(values.items(), key=lambda item: -item[1]):
        cells = [quantity(value, "")]
        if maximum is not None:
            cells.append(f"{100.0 * value / maximum:.1f} %" if is_share else quantity(maximum - value, ""))
        worst = summary.worst_off.get(label, {})
        cells += [quantity(worst[key], "") if key in worst else "" for key in least]
        table.add_row(label, *cells, style="bold" if label == THIS_RUN else None)
    return table


def quantity(value: float, unit: str, std: float = math.inf) -> str:
    """A number with four digits, or to one decimal, and its unit; with more digits if it would be off by ``std``."""
    text = f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if 0.0 < std < abs(float(text.replace(",", "")) - value):
        text = f"{float(digits(value, std)):,}"
    return f"{text} {unit}".rstrip()


def traffic_text(traffic: Traffic) -> str:
    """Messages, transmissions and size in words."""
    if not traffic.messages:
        return "none"
    return f"{traffic.messages:,} ({_bytes_text(traffic.bytes)}; {traffic.transmissions:,} transmissions)"


def _bytes_text(n_bytes: int) -> str:
    return f"{n_bytes / 1000:,.1f} kB" if n_bytes >= 1000 else f"{n_bytes} bytes"


def _scopes_text(scopes: Sequence[ScopeInUse]) -> str:
    ranked = sorted(scopes, key=lambda scope: -scope.share)
    shown = ranked if len(ranked) <= _MOST_SCOPES else ranked[: _MOST_SCOPES - 1]
    text = ", ".join(f"{' '.join(scope.variables)} ({scope.share:.0%})" for scope in shown)
    return text if len(shown) == len(ranked) else f"{text}, … {len(ranked)} scopes"


def _point_text(summary: Summary, place: Recommendation | None, *, with_std: bool) -> str:
    if place is None:
        return "none: every measurement failed"
    unit, std = summary.unit, _std(summary)
    value = _value_with_std(place, unit) if with_std else quantity(place.mean, unit, std)
    coordinates = summary.coordinates
    if isinstance(coordinates, Coordinates):
        pairs = zip(coordinates.axes(), coordinates.own(np.array([place.location]))[0], strict=True)
        least, unit_m = (6, 1e5) if coordinates.unit == "degrees" else (1, coordinates.unit_m)
        decimals = max([least, *(_decimals(side / unit_m) for side in summary.sides if side)])
        return f"{value} at {', '.join(f'{axis} {number:.{decimals}f}' for axis, number in pairs)}"
    values = list(place.point.values()) if place.point else place.location
    sides = [side or math.inf for side in summary.sides]  # 0 of a variable with one value
    texts = list(map(_coordinate_text, values, [*sides, *[math.inf] * len(values)]))
    if place.point:
        texts = [f"{name} = {text}" for name, text in zip(place.point, texts, strict=True)]
    if len(texts) > MOST_COORDINATES:
        texts[MOST_COORDINATES - 1 :] = [f"… {len(texts)} values"]
    return f"{value} at ({', '.join(texts)}) {summary.axis_unit}".rstrip()


def _std(summary: Summary) -> float:
    return math.inf if summary.recommendation is None else summary.recommendation.std


def _value_with_std(place: Recommendation, unit: str) -> str:
    decimals = min(8, max(0, 1 - math.floor(math.log10(place.std)))) if place.std > 0 else 4
    mean = f"{place.mean:.4g}" if max(abs(place.mean), place.std) < 1e-4 else f"{place.mean:,.{decimals}f}"
    std = f"{place.std:.2g}" if 0.0 < place.std < 1e-4 else f"{place.std:,.{decimals}f}"
    return f"{mean} ± {std} {unit}".rstrip()


def _coordinate_text(value: Any, side: float) -> str:
    """Text of a coordinate with three digits, or with more if the side of the box is much smaller than the number."""
    if not isinstance(value, float):
        return short(value)
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text if abs(float(text.replace(",", "")) - value) <= side / 1000.0 else f"{value:,.{_decimals(side)}f}"


def _decimals(side: float) -> int:
    """Number of decimals that resolves a hundredth of a box width."""
    return max(0, 3 - math.ceil(math.log10(side)))

"""How what was told becomes part of what is known: the log of a team or an agent, and what it learned."""

from typing import Any, TypeVar

import numpy as np

from swarmbo.deciding.logbook import Logbook
from swarmbo.problem.data import Dataset, News

L = TypeVar("L", bound=Any)  # a learner


def round_of(log: Logbook, query_id: str | None, *, is_all: bool) -> int:
    """The round that news are of: a query's own, or the present one where the round has ended.

    Args:
        log: Before the news were noted.
        query_id: Which query they are of; None: of what nobody asked for.
        is_all: Whether nothing more will come of the query.
    """
    return log.round - 1 if query_id is None or is_all else log.open[query_id].round


def noted(log: Logbook, query_id: str | None, news: News, *, is_all: bool = False) -> Logbook:
    """The log with news.

    Args:
        log: What is known.
        query_id: Which query they are of; None: of what nobody asked for.
        news: Of a query, and of what nobody asked for.
        is_all: Whether nothing more will come of the query.
    """
    problem, query = log.problem, None if query_id is None else log.open[query_id]
    places = problem.places(news.point, news.factors)
    waits = frozenset[str]() if query is None else frozenset(query.waits)
    own = {c: y for c, y in news.factors.items() if c in waits}
    if query_id is not None and news.total is not None:
        log = log.with_total(query_id, news.total, news.point, news.total_noise)
    elif query_id is not None:
        point = news.point
        if problem.is_field:
            point = problem.joint({channel: places[channel] for channel in own})
        log = log.with_factors(query_id, own, point=point, noise_std=news.noise) if own or not is_all else log
        log = log.without([query_id]) if is_all else log
    if unasked := {channel: y for channel, y in news.factors.items() if channel not in own}:
        row = problem.joint({channel: places[channel] for channel in unasked})
        factors = np.array([[unasked.get(channel, np.nan) for channel in problem.channels]])
        noise = np.array([[np.nan, *(news.noise.get(channel, np.nan) for channel in problem.channels)]])
        log = log.with_evaluations(row[None], np.array([np.nan]), factors, None, noise, attached=False)
    for reading in news.on_the_way:  # nobody asked for these: rows of their own
        row = problem.joint({reading.agent: reading.place})[None]
        is_its = np.array([[channel == reading.agent for channel in problem.channels]])
        noise = np.column_stack([[np.nan], np.where(is_its, reading.noise_std, np.nan)])
        log = log.with_evaluations(row, np.array([np.nan]), np.where(is_its, reading.outcome, np.nan), None, noise)
    return log


def with_attached(log: Logbook, learner: L, data: Dataset) -> tuple[Logbook, L]:
    """The log and the learner with evaluations that were never asked for.

    Args:
        log: What is known.
        learner: What was made of it.
        data: The evaluations.
    """
    learner = learner.attach(data)
    return log.with_evaluations(data.X, data.totals, data.factors, data.rounds, data.noise_std), learner

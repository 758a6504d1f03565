"""Metrics from the records of a run: regret, map error, traffic, energy and travel."""

from swarmbo.metrics.scores import (
    cumulative_regret as cumulative_regret,
    level_f1 as level_f1,
    map_rmse as map_rmse,
    mean_regret as mean_regret,
    score_round as score_round,
    simple_regret as simple_regret,
)
from swarmbo.metrics.totals import (
    agreement_traffic as agreement_traffic,
    declined as declined,
    distance_travelled as distance_travelled,
    links_of as links_of,
    links_over_rounds as links_over_rounds,
    sharing_links_of as sharing_links_of,
    sharing_traffic as sharing_traffic,
    total_cost as total_cost,
)

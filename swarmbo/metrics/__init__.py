"""Metrics from the records of a run: regret, map error, traffic, energy and travel."""

from swarmbo.metrics.scores import (
    agreement_traffic as agreement_traffic,
    cumulative_regret as cumulative_regret,
    declined as declined,
    distance_travelled as distance_travelled,
    level_f1 as level_f1,
    links_of as links_of,
    links_over_rounds as links_over_rounds,
    map_rmse as map_rmse,
    mean_regret as mean_regret,
    score_round as score_round,
    sharing_links_of as sharing_links_of,
    sharing_traffic as sharing_traffic,
    simple_regret as simple_regret,
    total_cost as total_cost,
)

"""What is read off the records of a run: regret, map error, traffic, travel, and statistics over seeds."""

from swarmbo.metrics.field_error import map_error as map_error
from swarmbo.metrics.field_error import map_rmse as map_rmse
from swarmbo.metrics.regret import cumulative_regret as cumulative_regret
from swarmbo.metrics.regret import mean_regret as mean_regret
from swarmbo.metrics.regret import score_round as score_round
from swarmbo.metrics.regret import simple_regret as simple_regret
from swarmbo.metrics.statistics import PairedDifference as PairedDifference
from swarmbo.metrics.statistics import paired_difference as paired_difference
from swarmbo.metrics.traffic import agreement_traffic as agreement_traffic
from swarmbo.metrics.traffic import sharing_traffic as sharing_traffic
from swarmbo.metrics.traffic import total_traffic as total_traffic
from swarmbo.metrics.travel import distance_travelled as distance_travelled

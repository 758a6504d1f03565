"""What a query is worth, as local functions over the scopes of a factor graph."""

from swarmbo.acquisition.chain import chains as chains, shortest_path_order as shortest_path_order
from swarmbo.acquisition.db_gp_ucb import (
    DBGPUCB as DBGPUCB,
    LocalProblem as LocalProblem,
    local_acquisition as local_acquisition,
)
from swarmbo.acquisition.schedules import Moment as Moment, alpha as alpha, beta as beta
from swarmbo.acquisition.shortlist import greedy_batch as greedy_batch, shortlist as shortlist
from swarmbo.acquisition.situation import Decision as Decision, Situation as Situation

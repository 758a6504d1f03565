"""What a query is worth, as local functions over the scopes of a factor graph."""

from swarmbo.acquisition.chain import chains as chains
from swarmbo.acquisition.chain import shortest_path_order as shortest_path_order
from swarmbo.acquisition.db_gp_ucb import (
    DBGPUCB as DBGPUCB,
)
from swarmbo.acquisition.db_gp_ucb import (
    LocalProblem as LocalProblem,
)
from swarmbo.acquisition.db_gp_ucb import (
    local_acquisition as local_acquisition,
)
from swarmbo.acquisition.schedules import alpha as alpha
from swarmbo.acquisition.schedules import beta as beta
from swarmbo.acquisition.shortlist import greedy_batch as greedy_batch
from swarmbo.acquisition.shortlist import shortlist as shortlist
from swarmbo.acquisition.situation import Decision as Decision
from swarmbo.acquisition.situation import Situation as Situation

"""One agent's side of max-sum; that all sides together decide as the fast path does is tested with the agents."""

import numpy as np

from swarmbo.coordination import MaxSum
from swarmbo.coordination.methods.max_sum import n_entries
from swarmbo.coordination.tables import sizes_of
from swarmbo.coordination.view import LocalView
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes


def test_the_work_that_decides_on_the_compiled_form_is_that_of_the_own_factors_in_this_part() -> None:
    owners = {"f": "ann", "g": "bob", "elsewhere": "ann"}
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"], "elsewhere": ["z"]}, owners)
    tables = {"f": np.zeros((2, 3)), "g": np.zeros(3), "elsewhere": np.zeros(100)}
    plan = MaxSum().plan(graph, sizes_of(graph, tables), Routes(graph.agents))
    anns = {factor: tables[factor] for factor in graph.factors_owned_by("ann")}
    assert [n_entries(LocalView.of(part, "ann"), anns) for part in plan.parts] == [6, 100]

"""Factor graphs and ownership, without any belief."""

from swarmbo.graph.bipartite import Edges as Edges
from swarmbo.graph.box_functions import BoxFunctions as BoxFunctions
from swarmbo.graph.factor_graph import (
    AnyGraph as AnyGraph,
    AnyTables as AnyTables,
    FactorGraph as FactorGraph,
    Links as Links,
)
from swarmbo.graph.groups import FactorStack as FactorStack, stacks_of as stacks_of

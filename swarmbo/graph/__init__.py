"""Factor graphs and ownership, without any belief."""

from swarmbo.graph.bipartite import Edges as Edges
from swarmbo.graph.box_functions import BoxFunctions as BoxFunctions
from swarmbo.graph.factor_graph import FactorGraph as FactorGraph
from swarmbo.graph.groups import FactorStack as FactorStack, stacks_of as stacks_of

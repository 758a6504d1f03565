"""Factor graphs and ownership. Knows no GP."""

from swarmbo.graph.edges import Edges as Edges
from swarmbo.graph.factor_graph import FactorGraph as FactorGraph
from swarmbo.graph.groups import FactorStack as FactorStack, stacks_of as stacks_of

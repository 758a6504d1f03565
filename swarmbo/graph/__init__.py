"""Factor graphs and ownership. Knows no GP."""

from swarmbo.graph.factor_graph import FactorGraph as FactorGraph

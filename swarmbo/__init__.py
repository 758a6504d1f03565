"""swarmbo: agents in simulated worlds agree by message passing on where to measure next."""

__version__ = "0.1.0"

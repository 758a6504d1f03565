"""Agents in separate processes, also on separate machines, which agree over a network."""

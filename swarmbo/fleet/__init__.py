"""Agents in processes and on machines of their own, which agree over a network."""

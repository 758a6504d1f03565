"""Agents in processes and on machines of their own, that agree over a network."""

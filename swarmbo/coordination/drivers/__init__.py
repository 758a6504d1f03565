"""Drivers, which answer the requests of a method: by messages between agents, or for a whole part in one process."""

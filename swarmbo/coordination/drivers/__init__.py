"""Drivers, which answer the requests of a method: by messages between agents, or with a whole part in sight."""

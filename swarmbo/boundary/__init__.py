"""Boundary to the outside: values of users and environments, files, and warnings about data."""

"""Beliefs and decisions of a team: its parts, learners, inputs from users, and the traffic of its agents' reports."""

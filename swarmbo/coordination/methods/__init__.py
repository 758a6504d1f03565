"""Coordination methods, one file each: settings, and the steps of one agent."""

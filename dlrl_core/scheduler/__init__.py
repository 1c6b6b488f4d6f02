"""Placement groups and actors: reserve, start, name, kill."""

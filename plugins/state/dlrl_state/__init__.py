"""Keeps committed state: in the memory of nodes and their neighbours, and on durable storage."""

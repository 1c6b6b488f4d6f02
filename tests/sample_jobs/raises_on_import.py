"""A module of a user that fails when it is imported."""

raise RuntimeError("no licence found")

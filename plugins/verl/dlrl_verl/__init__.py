"""The adapter between dlrl and verl."""

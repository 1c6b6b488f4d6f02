"""The `dlrl` command."""

"""The adapter between dlrl and OpenRLHF."""

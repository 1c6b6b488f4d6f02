"""Frameworks whose adapters break the contract, each in its own way."""

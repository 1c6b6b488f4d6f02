"""The store that needs no server: an SQLite file."""

"""The store on a Redis server, or one with the same protocol."""

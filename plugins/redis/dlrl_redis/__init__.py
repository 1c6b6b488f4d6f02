"""The store on a Redis server, or one that speaks its language."""

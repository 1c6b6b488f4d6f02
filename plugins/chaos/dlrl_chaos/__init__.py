"""Breaking a job on purpose, to see that it survives."""

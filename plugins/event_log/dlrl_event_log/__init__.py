"""A job's journal as lines of JSON in a file."""

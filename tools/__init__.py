"""Scripts that keep the code base in shape; run from the root of a clone, as `python -m tools.measure`."""

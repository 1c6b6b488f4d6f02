"""Performance claims, each one command: python -m benchmarks.<name>. Both sides are measured in one run."""

"""The framework of `bad_frameworks.heavy`, in a distribution of its own."""

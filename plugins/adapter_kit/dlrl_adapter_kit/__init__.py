"""What adapters of frameworks share: the seam to a framework's own trainer, and patches that wait for an import."""

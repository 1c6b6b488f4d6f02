"""acme: policy gradient on a bandit with one arm for each real number."""

"""What adapters share that have rollouts on vLLM."""

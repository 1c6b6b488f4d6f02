"""The Master of a job: the Ray actor, and the one control loop that acts."""

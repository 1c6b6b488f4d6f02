"""Run a job from a shell, show how it goes and how it ended; stop one."""

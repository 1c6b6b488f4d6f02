"""A job from the words of a shell: plan it, run it and show how it goes, stop it."""

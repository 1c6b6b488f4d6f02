"""Workloads and trainers that tests submit. Imported by name in the processes of a job, as a user's are."""

"""A Ray on this machine that is started for a job and stopped after it."""

"""`dlrl doctor`: is this machine, and the cluster if one is named, in order? Each check says what to do."""

"""A learner's clone: progress, backups, and the commands that guide the learner."""

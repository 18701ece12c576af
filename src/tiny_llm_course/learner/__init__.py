"""A learner's clone: where its files are, how they are written safely, and the commands that guide the learner."""

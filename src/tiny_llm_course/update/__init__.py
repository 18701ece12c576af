"""`tiny-llm update`: merges a newer course into a clone that contains a learner's work."""

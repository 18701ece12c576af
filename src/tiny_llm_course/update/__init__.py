"""`tiny-llm update`: merges a newer course into a clone with work in it."""

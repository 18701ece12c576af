"""`tiny-llm viz`: pictures of what happens inside of a model."""

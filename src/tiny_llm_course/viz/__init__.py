"""`tiny-llm viz`: pictures of what happens inside a model or a kernel."""

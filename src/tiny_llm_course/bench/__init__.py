"""`tiny-llm bench`: how fast the kernels of a package are, and how much each day of week 2 speeds up a model."""

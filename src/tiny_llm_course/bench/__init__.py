"""`tiny-llm bench`: the speeds of a package's kernels, and the speed of a model after each day of week 2."""

"""`tiny-llm bench`: how fast the kernels of a package are, and what each day of week 2 bought."""

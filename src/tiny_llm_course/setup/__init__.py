"""Prepares a machine for the course: `tiny-llm install`, `doctor` and `build-ext`."""

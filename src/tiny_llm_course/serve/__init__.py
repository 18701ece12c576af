"""Serves many requests at the same time: `tiny-llm serve` and `tiny-llm batch`."""

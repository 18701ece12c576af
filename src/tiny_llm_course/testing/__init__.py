"""Runs the tests of a learner's code: `tiny-llm test` and `watch`, and the course's pytest plugin."""

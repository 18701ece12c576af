"""Tests of a learner's code: `tiny-llm test`, the processes and the plugin behind it, and the naming of mistakes."""

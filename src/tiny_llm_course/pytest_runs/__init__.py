"""Runs the tests of some days in separate processes, and collects the tests' results."""

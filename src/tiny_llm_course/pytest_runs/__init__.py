"""Runs the tests of days in processes of their own, and collects the tests' results."""

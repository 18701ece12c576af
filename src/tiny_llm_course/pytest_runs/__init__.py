"""Runs day tests in processes of their own, and collects their results."""

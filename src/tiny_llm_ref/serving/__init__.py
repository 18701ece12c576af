"""Serving: one model, many requests at the same time.

This package has a cache for the keys and values of many requests, a scheduler that plans each step, and an engine that
runs the steps. Import from the modules, not from this package.
"""

__all__: list[str] = []

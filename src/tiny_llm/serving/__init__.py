"""Serving: one model, many requests at the same time.

This package has a cache for the keys and values of many requests, a scheduler that decides what the next step computes,
and an engine that computes it. Import from the modules, as in the package above.
"""

__all__: list[str] = []

"""`tiny-llm viz`: pictures of what happens inside of a model."""

from .commands import app

__all__ = ["app"]

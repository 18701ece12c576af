"""`tiny-llm viz`: pictures of what happens inside of a model."""

from .viz_commands import app

__all__ = ["app"]

"""Checkpoints that come with the course."""

__all__: list[str] = []

"""Checkpoints that come with the course, and the program that made them."""

from pathlib import Path

__all__ = ["BUNDLED", "bundled"]

BUNDLED = ("story", "story-draft", "story-qwen2")


def bundled(name: str) -> Path:
    """The checkpoint directory of a bundled model, a name of BUNDLED."""
    return Path(__file__).parent / name

"""The checkpoints that come with the course, and the programs that made them."""

from pathlib import Path

__all__ = ["BUNDLED", "bundled"]

BUNDLED = ("story", "story-draft", "story-qwen2")


def bundled(name: str) -> Path:
    """Return the checkpoint directory of a bundled model. name: one of BUNDLED."""
    return Path(__file__).parent / name

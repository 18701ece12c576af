"""The checkpoints that come with the course, and the programs that made them."""

from pathlib import Path

__all__ = ["BUNDLED", "bundled", "draft_heads"]

BUNDLED = ("story", "story-draft", "story-qwen2")


def bundled(name: str) -> Path:
    """Return the checkpoint directory of a bundled model. name: one of BUNDLED."""
    return Path(__file__).parent / name


def draft_heads(name: str) -> Path | None:
    """Return the file of a bundled model's draft heads, or None if there is no such file."""
    path = Path(__file__).parent / "draft_heads" / f"{name}.safetensors"
    return path if name in BUNDLED and path.exists() else None

"""Hugging Face format: the parts that the folders of trained and untrained checkpoints share."""

import json
from pathlib import Path
from typing import Any

__all__ = ["ARCHITECTURES", "CHAT_TEMPLATE", "END", "SPECIAL_TOKENS", "TURN_END", "write_json"]

END, TURN_END = "<|endoftext|>", "<|im_end|>"  # the tokens that end a text, and a turn of a chat
SPECIAL_TOKENS = [END, "<|im_start|>", TURN_END]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with indentation, because people read these files, too."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""A checkpoint that thinks like Qwen3, and whose texts are known, because each token has a fixed next token."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.hf_format import TURN_END, write_json
from tiny_llm_models.untrained import byte_tokenizer, untrained_config

__all__ = ["ALWAYS", "ANSWER", "BY_ITSELF", "COUNT", "SWITCHED", "THINKING", "write_thinking"]

THINKING, ANSWER = "Two and\ntwo: 数", "It is four."
_THOUGHT = ["<think>", "\nTwo", " and", "\ntwo", ": ", "数", " \n", "</think>"]  # 数 is three tokens
_ANSWER = ["\n\n", "It", " is", " four.", TURN_END]
COUNT = len(_THOUGHT) + 2 + 1  # tokens of the thinking, with the empty line after it
_TEXT = ["\n", *_THOUGHT, *_ANSWER]  # each token follows the previous token

_TURNS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1].lstrip('\n') if message.role == 'assistant' else message.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
)
SWITCHED = _TURNS + (  # as Qwen3's: the model thinks, unless the template writes an empty thought for it
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ALWAYS = _TURNS + "<think>\n{% endif %}"  # as QwQ's and Qwen3-Thinking-2507's
BY_ITSELF = _TURNS + "{% endif %}"  # as DeepSeek-R1-Distill-Qwen's at first: nothing tells that the model thinks


def write_thinking(path: Path, template: str = SWITCHED, **generation_config: object) -> Path:
    """Write a checkpoint directory.

    A line's end makes the model think, and an empty line makes it answer, so it reacts like Qwen3 to each prompt that
    the templates make. Attention and MLPs add nothing; the output layer decides the next token.
    """
    tokenizer = byte_tokenizer()
    words = [text for text in _TEXT[1:-1] if text.isascii()]
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    size = tokenizer.get_vocab_size()
    config = untrained_config(
        vocab_size=size, hidden_size=size, intermediate_size=8, num_hidden_layers=2, rms_norm_eps=1e-6
    )
    weights = {
        name: np.zeros(shape, np.float32) if len(shape) > 1 else np.ones(shape, np.float32)
        for name, shape in expected_shapes(ModelConfig.from_hf(config)).items()
    }
    weights["model.embed_tokens.weight"] = np.eye(size, dtype=np.float32)
    chain = [token for text in _TEXT for token in tokenizer.encode(text).ids]
    for token, following in pairwise(chain):
        weights["lm_head.weight"][following, token] = 1
    path.mkdir(parents=True)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(path / "tokenizer.json"))
    write_json(path / "config.json", config)
    write_json(path / "generation_config.json", {"eos_token_id": [config["eos_token_id"]], **generation_config})
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": TURN_END, "chat_template": template}
    write_json(path / "tokenizer_config.json", settings)
    return path

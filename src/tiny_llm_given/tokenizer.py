"""Loads a checkpoint's tokenizer with mlx-lm. Given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_llm_models.hf_format import CHAT_TEMPLATE

from .chat_template import ChatTemplate, RefusedError
from .checkpoint_files import read_json

__all__ = ["load_tokenizer"]

_MOST_ADDED, _LONGEST_ADDED = 20_000, 1_000  # tokens added to the vocabulary, and characters in one of these tokens
_MOST_BYTES = 4_000_000  # of each small file; the longest small file lists the added tokens again
_SMALL = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
_HELLO = [{"role": "user", "content": "Hello"}]


def load_tokenizer(path: Path, vocab_size: int) -> Any:
    """Return the tokenizer of a checkpoint directory, with `encode`, `decode` and `apply_chat_template`.

    vocab_size: the size of the model's vocabulary.

    Raises:
        FileNotFoundError: there is no tokenizer.json.
        ValueError: the tokenizer's files are damaged, belong to another model, or would take minutes to load; or its
            chat template fails.
    """
    _check_files(path)
    from mlx_lm.tokenizer_utils import load  # takes more than a second to import

    try:
        tokenizer = load(path)
        _check_tokens(tokenizer, vocab_size)
        _check_template(tokenizer)
    except Exception as error:  # damaged files cause many kinds of errors
        raise ValueError(f"{path}: its tokenizer cannot be loaded: {type(error).__name__}: {error}") from error
    return tokenizer


def _check_files(path: Path) -> None:
    """Check that a tokenizer's files are not too large. A tokenizer searches for all added tokens at once; preparing
    this search takes a second per million characters of added tokens."""
    file = path / "tokenizer.json"
    added = read_json(file).get("added_tokens") or []
    if not isinstance(added, list) or len(added) > _MOST_ADDED:
        raise ValueError(f"{file}: added_tokens: expected a list of at most {_MOST_ADDED:,} tokens")
    contents = [str(token.get("content", "")) for token in added if isinstance(token, Mapping)]
    if (longest := max(map(len, contents), default=0)) > _LONGEST_ADDED:
        raise ValueError(
            f"{file}: added_tokens: expected at most {_LONGEST_ADDED:,} characters in each, got {longest:,}"
        )
    for name in _SMALL:
        if (path / name).exists() and (size := (path / name).stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{path / name}: expected at most {_MOST_BYTES:,} bytes, got {size:,}")


def _check_tokens(tokenizer: Any, vocab_size: int) -> None:
    if not tokenizer.encode("a"):
        raise ValueError("expected a vocabulary, got one that turns text into no tokens")
    if (highest := max(tokenizer.get_vocab().values())) >= vocab_size:
        raise ValueError(f"expected token ids below the model's vocab_size, {vocab_size}, got {highest}")


def _check_template(tokenizer: Any) -> None:
    """Check that a chat template works: it may refuse a conversation, but it must not fail or run for too long."""
    if not tokenizer.has_chat_template or tokenizer.chat_template == CHAT_TEMPLATE:
        return
    template = ChatTemplate(tokenizer)
    try:
        template.apply_chat_template(_HELLO, add_generation_prompt=True, tokenize=False)
    except RefusedError:
        pass
    finally:
        template.close()

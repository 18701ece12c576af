"""The tokenizer of the bundled models: byte-level BPE, so that no text is out of vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ..hf_format import CHAT_TEMPLATE, END, SPECIAL_TOKENS, TURN_END, write_json
from .recipes import CONTEXT, VOCAB_SIZE

__all__ = ["save_tokenizer", "train_tokenizer", "with_fewer_merges"]

# A word keeps to one script: in Japanese, names and things (kanji, katakana) stand apart from particles (hiragana).
_WORD = r" ?\p{Latin}+|\p{Han}+|\p{Hiragana}+|[\p{Katakana}ー]+| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\n+|\s+"


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Learn the merges from these texts; the special tokens come last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def with_fewer_merges(tokenizer: Tokenizer, share: float) -> Tokenizer:
    """The same tokens, but only this share of the merges: it cuts words into smaller pieces."""
    description = json.loads(tokenizer.to_str())
    merges = description["model"]["merges"]
    description["model"]["merges"] = merges[: int(share * len(merges))]
    return Tokenizer.from_str(json.dumps(description))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json with the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)

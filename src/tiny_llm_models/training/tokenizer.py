"""The tokenizer of the bundled models: byte-level BPE, which can encode every text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ..hf_format import CHAT_TEMPLATE, END, SPECIAL_TOKENS, TURN_END, write_json
from .recipes import CONTEXT, VOCAB_SIZE
from .vocabulary import english_words, single_tokens, word_pattern

__all__ = ["save_tokenizer", "train_tokenizer", "with_fewer_merges"]

# How often a word is repeated in the tokenizer's training text, per text of the corpus:
_REPEATS = 1 / 3  # words that must become one token, and that are therefore more frequent than most pairs of characters
_HINTS = 1 / 60  # other English words, because otherwise runs of hiragana would displace rare words


def train_tokenizer(texts: Sequence[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Learn merges from these texts, so that each word of the lexicons is one token. The special tokens come last.

    Raises:
        ValueError: the vocabulary is too small for the lexicons.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(word_pattern()), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    words, others = single_tokens(), english_words()
    repeated = [repeat(word, round(_REPEATS * len(texts))) for word in words]
    repeated += [repeat(word, round(_HINTS * len(texts))) for word in others]
    tokenizer.train_from_iterator(chain(texts, *repeated), trainer)
    if cut := [word for word in words if len(tokenizer.encode(word).ids) > 1]:
        raise ValueError(f"expected room for {len(words)} words in {vocab_size} tokens, but these are cut: {cut}")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def with_fewer_merges(tokenizer: Tokenizer, share: float) -> Tokenizer:
    """Return a tokenizer with the same tokens, but with only the first of the merges.

    Without the other merges, the tokenizer cuts words into pieces. share: the share of the merges that remain.
    """
    description = json.loads(tokenizer.to_str())
    merges = description["model"]["merges"]
    description["model"]["merges"] = merges[: int(share * len(merges))]
    return Tokenizer.from_str(json.dumps(description))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, and tokenizer_config.json with the chat template."""
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

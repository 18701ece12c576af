"""Labels of tokens in pictures: the text of a token, with a visible symbol for each character."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len

from ..ui import left

__all__ = ["padded", "shortened", "token_bytes", "token_labels"]

_SIGNS = {" ": "␣", "\u3000": "␣", "\n": "⏎", "\t": "\\t"}


def token_bytes(entry: str | None, token: int) -> bytes:
    """Return the bytes of a vocabulary entry of a byte-level BPE, in which each character represents a byte.

    An entry with a character that represents no byte is a special token, whose text is the entry itself. entry: the
    entry, or None if the vocabulary has no entry for the token.
    """
    if entry is None:
        return f"#{token}".encode()
    letters = _letters()
    return bytes(map(letters.__getitem__, entry)) if letters.keys() >= set(entry) else entry.encode()


def token_labels(pieces: Sequence[bytes]) -> list[str]:
    """Return a label for each token of a text. pieces: the bytes of each token.

    Spaces and line breaks become symbols. If a character is spread over several tokens, the label of each of these
    tokens has the character and a number: "鰯[1/3]", "鰯[2/3]", "鰯[3/3]". Bytes that form no character are written in
    hexadecimal, such as "<F0 9F>".
    """
    owners = [token for token, piece in enumerate(pieces) for _ in piece]  # the token of each byte
    shown: list[tuple[int, bool, str]] = []  # token, whether it is a lone byte, text
    start = 0
    for character, data in _characters(b"".join(pieces)):
        parts = [token for token, _ in groupby(owners[start : start + len(data)])]
        for number, token in enumerate(parts, 1):
            part = f"[{number}/{len(parts)}]" if len(parts) > 1 else ""
            shown.append((token, not character, _visible(character) + part if character else data.hex().upper()))
        start += len(data)
    labels = [""] * len(pieces)
    for (token, is_byte), group in groupby(shown, key=lambda item: item[:2]):
        texts = [text for _, _, text in group]
        labels[token] += f"<{' '.join(texts)}>" if is_byte else "".join(texts)
    return labels


def shortened(label: str, width: int) -> str:
    """Return the label, cut to `width` columns of a terminal, of which a Japanese character takes two."""
    if cell_len(label) <= width:
        return label
    while cell_len(label) > width - 1:
        label = label[:-1]
    return label + "…"


def padded(label: str, width: int) -> str:
    """Return the label, cut or padded to `width` columns of a terminal."""
    return left(shortened(label, width), width)


def _characters(data: bytes) -> list[tuple[str, bytes]]:
    """Split UTF-8 text into characters and their bytes. A byte that belongs to no character is paired with ""."""
    characters, start = [], 0
    while start < len(data):
        lengths = (length for length in range(1, 5) if _is_character(data[start : start + length]))
        length = next(lengths, 0)
        characters.append((data[start : start + length].decode("utf-8"), data[start : start + (length or 1)]))
        start += length or 1
    return characters


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def _visible(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    return character if character.isprintable() else f"<U+{ord(character):04X}>"


def _letters() -> dict[str, int]:
    """Return the byte for each character of GPT-2's alphabet, keyed by character. A printable byte is written as the
    character with the same code point. The other bytes are written as the characters from U+0100 on, in order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}

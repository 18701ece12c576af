"""Makes submitted texts safe for every format: valid Unicode, no control characters, and a bounded length."""

from __future__ import annotations

import re

__all__ = ["plain", "plain_name"]

LONGEST = 10_000  # characters; with a diagnosis, these take fewer than the 65,535 bytes that Exercism accepts
LAYOUT = "\n\t"  # allowed in a text, but not in a name
# Control characters, lone surrogates, and characters that XML forbids or that change a text's direction or lines.
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")
SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def plain(text: str) -> str:
    """Return the text with escapes, such as `\\x1b`, in place of unsafe characters. Line breaks and tabs stay."""
    shown = UNSAFE.sub(lambda found: found[0] if found[0] in LAYOUT else _escape(found[0]), text[: 2 * LONGEST])
    shown = shown[:LONGEST].rstrip()
    return f"{shown}\n... ({len(text):,} characters in all)" if len(text) > LONGEST else shown


def plain_name(name: str) -> str:
    """Return the name on one line, with escapes for unsafe characters and for bytes that are not UTF-8 (`\\xe9`)."""
    return UNSAFE.sub(lambda found: _escape(found[0]), name)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # the code point by which Python represents a byte that is not UTF-8
        code -= 0xDC00
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

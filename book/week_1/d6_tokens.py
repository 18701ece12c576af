"""Print which bytes of a text belong to each token of `story`, and decode the bytes of a character one by one."""

from tokenizers import pre_tokenizers

from tiny_llm.models import load

_, tokenizer = load("story")


def split(text: str) -> str:
    """Return the text's bytes in hexadecimal, with | between tokens."""
    pieces, rest = [], text.encode()
    for token in tokenizer.convert_ids_to_tokens(tokenizer.encode(text)):  # one character per byte
        pieces.append(rest[: len(token)].hex(" "))
        rest = rest[len(token) :]
    return " | ".join(pieces)


for text in (" key", " keys", "鍵", "針", "かぜ", "🗝"):
    tokens = tokenizer.encode(text)
    print(f"{len(text.encode())} bytes in {len(tokens)} token{'s' * (len(tokens) > 1)}: {text!r} = {split(text)}")

letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("鍵")[0][0]
single = tokenizer.convert_tokens_to_ids(list(letters))
print(f"\n鍵 is token {tokenizer.encode('鍵')}. Its bytes, {letters!r} in tokenizer.json, are the tokens {single}:")
for count in (1, 2, 3):
    print(f"  {single[:count]} decodes to {tokenizer.decode(single[:count])!r}")

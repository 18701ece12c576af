"""Decode tokens one by one, without and with a StreamingDetokenizer, and stop at a stop string."""

from tiny_llm.generate import StopStrings, StreamingDetokenizer
from tiny_llm.models import load

_, tokenizer = load("story")

detokenizer = StreamingDetokenizer(tokenizer)
print("token  alone   returned")
for token in tokenizer.encode("かぜと針と🗝"):
    print(f"{token:5}  {tokenizer.decode([token])!r:6} {detokenizer.add(token)!r}")
print(f"{'end':>5}  {'':6} {detokenizer.finish()!r}")

print("\nstop at '\\nUser:'")
detokenizer, stop_strings = StreamingDetokenizer(tokenizer), StopStrings(["\nUser:"])
for token in tokenizer.encode("In the box.\nUsed by Mia.\nUser: Where"):
    text = detokenizer.add(token)
    print(f"  {text!r:9} returned {stop_strings.add(text)!r}")
    if stop_strings.found:
        print("  found: no more tokens are asked for")
        break

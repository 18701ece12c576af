"""Compare computing all positions again at each step with computing each position once."""

from dataclasses import dataclass

from tiny_llm.models import resolve
from tiny_llm_given.config import ModelConfig


@dataclass
class Size:
    layers: int
    E: int
    I: int
    H_q: int
    H_kv: int
    D: int
    V: int

    def step(self, new: int, length: int) -> int:
        """Count multiplications and additions for the last `new` of `length` tokens, with logits for each new token."""
        weights = self.layers * (2 * self.E * self.D * (self.H_q + self.H_kv) + 3 * self.E * self.I) + self.E * self.V
        return new * (2 * weights + 4 * self.layers * self.H_q * self.D * length)


config = ModelConfig.from_pretrained(resolve("story"))
story = Size(
    config.num_hidden_layers,
    config.hidden_size,
    config.intermediate_size,
    config.num_attention_heads,
    config.num_key_value_heads,
    config.head_dim,
    config.vocab_size,
)
qwen = Size(layers=28, E=1024, I=3072, H_q=16, H_kv=8, D=128, V=151_936)  # Qwen3-0.6B

print("               positions             operations, story       operations, Qwen3-0.6B")
print("prompt   new       again   once     again     once ratio     again     once ratio")
for prompt, new in ((100, 1), (100, 10), (100, 200), (100, 900)):
    lengths = range(prompt, prompt + new)  # the text's length at each step
    row = f"{prompt:6} {new:5} {sum(lengths):11,} {prompt + new - 1:6,}"
    for size in (story, qwen):
        again = sum(size.step(length, length) for length in lengths)
        once = size.step(prompt, prompt) + sum(size.step(1, length) for length in lengths[1:])
        row += f"  {again:8.1e} {once:8.1e} {again / once:5.0f}"
    print(row)

"""Generate texts with the same seed and another seed, at a high temperature, and by greedy decoding."""

import mlx.core as mx

from tiny_llm.generate import generate_simple, stream_text
from tiny_llm.models import load
from tiny_llm.sampler import make_sampler

model, tokenizer = load("story", mx.float32)
prompt = tokenizer.apply_chat_template(
    [{"role": "user", "content": "Tell me a short story."}], add_generation_prompt=True
)


def tell(**settings) -> None:
    sampler = make_sampler(**settings)
    tokens = generate_simple(model, prompt, sampler, 24, model.config.eos_token_ids)
    text = "".join(stream_text(tokens, tokenizer))
    print(", ".join(f"{name} {value}" for name, value in settings.items()) + f":\n    {text!r}")


tell(seed=3)
mx.random.normal((1000,))  # draws from MLX's global random state, not from the sampler's
tell(seed=3)
tell(seed=5)
tell(temperature=3, seed=3)
tell(temperature=3, min_p=0.2, seed=3)
tell(temperature=0)
tell(temperature=0, repetition_penalty=1.3)

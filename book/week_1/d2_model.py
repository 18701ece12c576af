"""Run `story` with your RoPE, then with wrong pairs, a wrong base, no positions, and a reordered checkpoint."""

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE
from tiny_llm_ref.models import load  # your own version is complete on day 5

model, tokenizer = load("story", mx.float32)
D, base = model.config.head_dim, model.config.rope_theta


def write(text: str, length: int = 16) -> str:
    chat = [{"role": "user", "content": text}]
    tokens = tokenizer.apply_chat_template(chat, add_generation_prompt=True)
    start = len(tokens)
    while len(tokens) < start + length and tokens[-1] not in tokenizer.eos_token_ids:
        tokens.append(mx.argmax(model(mx.array([tokens]))[0, -1]).item())
    return tokenizer.decode(tokens[start:], skip_special_tokens=True)


STORY = "Mia had a red key. She hid the key in the old box. Where is the key?"


def show(name: str, rope) -> None:
    print(name)
    for layer in model.layers:
        layer.self_attn.rope = rope
    for prompt in (STORY, "Tell me a story about a fox."):
        print(f"    {write(prompt)!r}")


show("halves, base 1,000,000", RoPE(D, 128, base))
show("neighbours", RoPE(D, 128, base, traditional=True))
show("base 10,000", RoPE(D, 128, 10000))
show("no positions", lambda x, offset: x)

order = mx.arange(D).reshape(2, D // 2).T.flatten()  # 0, 32, 1, 33, ...
for layer in model.layers:
    own = layer.self_attn
    for projection, norm in ((own.q_proj, own.q_norm), (own.k_proj, own.k_norm)):
        heads = projection.weight.reshape(-1, D, projection.weight.shape[-1])  # H, D, E
        projection.weight = heads[:, order].flatten(0, 1)
        norm.weight = norm.weight[order]
show("neighbours, and the checkpoint reordered", RoPE(D, 128, base, traditional=True))

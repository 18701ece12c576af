"""Let `story` continue the same two prompts with 16, 8, 4 and 2 bits per weight."""

from tiny_llm.generate import generate
from tiny_llm.models import load
from tiny_llm.quantize import quantize_model
from tiny_llm.sampler import greedy

CHAT = [{"role": "user", "content": "Mia had a red key. She hid the key under the bed. Where is the key?"}]

for bits in (16, 8, 4, 2):
    model, tokenizer = load("story")
    if bits < 16:
        quantize_model(model, group_size=64, bits=bits)
    question = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)
    start = tokenizer.encode("One fine day in spring")
    print(f"{bits} bits")
    for prompt in (question, start):
        tokens = list(generate(model, prompt, greedy, 18, model.config.eos_token_ids))
        print("  ", " ".join(tokenizer.decode(tokens).split()))

"""Serve five prompts, each with its own settings, and check that each request gets the same tokens as alone."""

import mlx.core as mx

from tiny_llm.generate import generate
from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.distributions import sampler_of
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request, TextStream
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler

PROMPTS = {
    "Mia had a red key. She hid the key in the old box. Where is the key?": SamplingParams(),
    "Tell me a short story.": SamplingParams(max_tokens=40, temperature=0.7, seed=3),
    "Tom had a blue ball. He put the ball under the bed. Where is the ball?": SamplingParams(),
    "Tell me a story about a dog.": SamplingParams(stop=["!", "."]),
    "Tell me a story.": SamplingParams(max_tokens=20),
}

model, tokenizer = load("story", mx.float32)
engine = Engine(model, Scheduler(BatchedKVCache(len(model.layers), num_slots=3, capacity=128), max_running=3))
for prompt, params in PROMPTS.items():
    chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    engine.add(Request(prompt, chat, params, TextStream(tokenizer, params.stop)))

for request in engine.run():
    params, ends = request.params, model.config.eos_token_ids
    alone = list(generate(model, request.prompt, sampler_of(params), params.max_tokens, ends))[: len(request.output)]
    print(f"{request.id}\n    {request.text.text.strip()}")
    print(f"    {len(request.output)} tokens, ended by {request.finish_reason}; as alone: {request.output == alone}")

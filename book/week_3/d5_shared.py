"""Print how many prompt tokens of eight requests go through the model. All prompts begin with the same 700 tokens."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.prefix_cache import PrefixCache
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

model, tokenizer = load("story-draft", mx.float32)
STORY = "Mia had a red key. She hid the key in the old box. Then Mia went to the river. Tom had a blue ball. "
SYSTEM = tokenizer.encode(STORY * 25)[:700]
QUESTIONS = ["Where is the key?", "Who had a ball?", "Where did Mia go?", "What was in the box?"]


class Rows:
    """An observer that counts the computed prompt tokens of each request."""

    def __init__(self):
        self.computed, self.steps, self.most = {}, 0, 0

    def on_step(self, engine, batch, touched):
        self.steps += 1
        held = {page for request in engine.scheduler.running for page in request.pages}
        self.most = max(self.most, len(held))
        for chunk in batch.chunks:
            count = max(min(chunk.end, len(chunk.request.prompt)) - chunk.start, 0)
            self.computed[chunk.request.id] = self.computed.get(chunk.request.id, 0) + count

    def on_abort(self, engine, request):
        """Do nothing: no request is aborted."""


def serve(name, is_together):
    """Serve eight requests, together or one after another. Print the counts, and return the outputs."""
    pool, rows = PagePool(400, page_size=16), Rows()
    cache = PagedKVCache(len(model.layers), pool, PrefixCache(pool) if name == "with the tree" else None)
    engine = Engine(model, Scheduler(cache, 8, TokenBudget(256), PreemptNewest()), [rows])
    outputs = []
    for i in range(8):
        prompt = SYSTEM + tokenizer.encode(QUESTIONS[i % 4])
        outputs.append(Request(f"r{i}", prompt, SamplingParams(6, ignore_eos=True)))
        engine.add(outputs[-1])
        while engine.has_work and not is_together:
            engine.step()
    while engine.has_work:
        engine.step()
    counts = "".join(f"{count:5}" for count in rows.computed.values())
    print(f"{name:19}{counts}{sum(rows.computed.values()):7,}{rows.steps:7}{rows.most:7}")
    return [request.output for request in outputs]


found = []
for is_together, title in ((False, "one after the other"), (True, "all at once")):
    print(f"{title:19}{'   '.join(f'r{i}' for i in range(8)):>40}    all  steps  pages")
    found += [serve(name, is_together) for name in ("without the tree", "with the tree")]
print(f"the same texts: {all(texts == found[0] for texts in found)}")

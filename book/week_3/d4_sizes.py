"""Print, for several page sizes, how many runs of keys a kernel reads for one token, and how long the runs are."""

from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

LENGTH, PART = 1000, 256
row = 2 * ModelConfig.from_hf(QWEN3_0_6B).head_dim  # bytes of a key in one head, in bfloat16

print(f"one token after {LENGTH - 1} others, in one head of keys; parts of {PART}")
print(f"{'page size':>12}{'pages in the table':>22}{'runs':>9}{'keys in a run':>17}{'bytes of a run':>18}")
for page_size in (1, 4, 16, 24, 64, 256):
    runs = []
    for first in range(0, LENGTH, PART):
        position, end = first, min(first + PART, LENGTH)
        while position < end:
            runs.append(min(page_size - position % page_size, end - position))
            position += runs[-1]
    pages, shortest, longest = -(-LENGTH // page_size), min(runs), max(runs)
    keys = str(longest) if shortest == longest else f"{shortest} to {longest}"
    print(f"{page_size:12}{pages:22,}{len(runs):9,}{keys:>17}{longest * row:18,}")

"""List the arrays of `story` with their shapes and numbers of parameters, computed from config.json alone."""

import math

from tiny_llm.models import resolve
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes

config = ModelConfig.from_pretrained(resolve("story"))
layers = config.num_hidden_layers
sizes: dict[tuple[str, str], int] = {}  # parameters in all layers, keyed by (name without layer number, shape)
for name, shape in expected_shapes(config).items():
    part = name.removeprefix("model.").removesuffix(".weight")
    if part.startswith("layers."):
        part = part.split(".", 2)[2]
    key = (part, " x ".join(f"{size:,}" for size in shape))
    sizes[key] = sizes.get(key, 0) + math.prod(shape)

total = sum(sizes.values())
print(f"{'':28}{'shape':>14}{'times':>7}{'parameters':>12}{'share':>9}")
for (part, shape), size in sizes.items():
    times = 1 if part in ("embed_tokens", "norm") else layers
    print(f"{part:28}{shape:>14}{times:7}{size:12,}{100 * size / total:7.2f} %")
print(f"{'together':28}{'':21}{total:12,}")

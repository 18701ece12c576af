"""Print which of six tokens each setting keeps, and which token each of four random numbers draws.

Then draw from a large vocabulary. The number of logits that are sorted first does not change the tokens.
"""

import numpy as np

from tiny_llm.serving.batch_sampler import Settings, sample_rows
from tiny_llm.serving.sampling_params import SamplingParams

PROBABILITIES = [0.10, 0.40, 0.05, 0.30, 0.12, 0.03]
SETTINGS = {
    "no filter": SamplingParams(temperature=1.0),
    "temperature 2": SamplingParams(temperature=2.0),
    "top-k 3": SamplingParams(temperature=1.0, top_k=3),
    "top-p 0.75": SamplingParams(temperature=1.0, top_p=0.75),
    "min-p 0.5": SamplingParams(temperature=1.0, min_p=0.5),
    "top-k 3, top-p 0.75": SamplingParams(temperature=1.0, top_k=3, top_p=0.75),
}
CHANCES = (0.05, 0.35, 0.65, 0.95)


def draw(logits: np.ndarray, rows: list[tuple[SamplingParams, float]], **options: int) -> list[int]:
    """Draw a token for each row in one call. rows: the settings and the random number of each row."""
    params, chances = zip(*rows, strict=True)
    return sample_rows(logits, Settings.of(params), np.array(chances), **options)


def small() -> None:
    likeliest_first = sorted(range(6), key=lambda token: -PROBABILITIES[token])
    print("token        " + "".join(f"{token:6}" for token in likeliest_first))
    print("probability  " + "".join(f"{PROBABILITIES[token]:6.2f}" for token in likeliest_first))
    print("\nsettings               keeps          chance " + "".join(f"{chance:6}" for chance in CHANCES))
    row = np.log(np.array(PROBABILITIES, np.float32))
    for name, params in SETTINGS.items():
        many = [(params, chance) for chance in np.linspace(0, 0.999, 1000)]
        kept = set(draw(np.tile(row, (1000, 1)), many))
        found = draw(np.tile(row, (len(CHANCES), 1)), [(params, chance) for chance in CHANCES])
        print(f"{name:23}{' '.join(str(token) for token in likeliest_first if token in kept):22}", end="")
        print("".join(f"{token:6}" for token in found))


def large() -> None:
    random = np.random.default_rng(1)
    logits = 3 * random.standard_normal((16, 151_936), dtype=np.float32)
    settings = [SamplingParams(temperature=0.7, top_k=50), SamplingParams(temperature=1.0, top_p=0.9)]
    rows = [(settings[i % 2], random.random()) for i in range(16)]
    first = {count: draw(logits, rows, first=count) for count in (1, 256, 151_936)}
    alone = [draw(logits[i : i + 1], rows[i : i + 1])[0] for i in range(16)]
    print("\n16 rows of 151,936 logits, top-k 50 and top-p 0.9 in turns")
    for count, tokens in first.items():
        print(f"{count:8,} sorted at first: the same tokens as row by row: {tokens == alone}")


small()
large()

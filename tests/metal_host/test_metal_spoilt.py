"""Idioms with randomly dropped, doubled or exchanged tokens run, or end in a message with a line."""

import random
from dataclasses import replace

import pytest
from metal_idioms import IDIOMS
from test_metal_idioms import run

from metal_host import MetalCompileError, MetalKernelError
from metal_host.tokens import tokenize


@pytest.mark.parametrize("seed", range(16))
def test_spoilt_kernel_ends_in_a_message(seed, monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    chance = random.Random(seed)
    name = chance.choice(list(IDIOMS))
    tokens = [token.text for token in tokenize(IDIOMS[name].source)]
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(tokens))
        tokens[at] = chance.choice(["", tokens[at] * 2, *chance.choices(tokens, k=2)])
    said, kind = "", "output"
    try:
        run(name, replace(IDIOMS[name], source="".join(tokens)))
    except MetalCompileError as error:
        said, kind = str(error), "compile"
    except MetalKernelError as error:
        said, kind = str(error), error.kind
    assert kind == "output" or f"{name}.metal:" in said

"""A model whose steps stall until they are released. It shows, without a clock, which step the code under test waits
for."""

from __future__ import annotations

import gc
import io
import threading
import weakref
from functools import cache
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm_models import bundled

__all__ = ["steps_ahead", "steps_submitted"]

READERS = 4  # the number of MLX's threads that read files
LOOKS, PAUSE = 60, 0.02  # a stalled step goes on after this many checks, this many seconds apart
FILE = bundled("story") / "model.safetensors"


class Gate(io.BytesIO):
    """A file of one number. A thread that reads the number waits until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        np.save(self, np.zeros(1, np.float32))
        self._size = self.tell()
        self.seek(0)
        self.is_reached, self.is_open = threading.Event(), threading.Event()
        self.was_in_vain = False  # whether the gate was still closed after all checks

    def readinto(self, buffer: Any) -> int:
        if self.tell() + len(buffer) >= self._size:  # the number itself, not the header
            self.is_reached.set()
            self.was_in_vain = not any(self.is_open.wait(PAUSE) for _ in range(LOOKS))
        return super().readinto(buffer)

    def read_by(self, stream: mx.Stream) -> None:
        with mx.stream(stream):
            mx.load(self, format="npy")


class Stop:
    """A stop for all file reading in MLX: until `open` is called, all of MLX's reading threads wait at gates."""

    def __init__(self) -> None:
        self._gates = [Gate() for _ in range(READERS)]
        for gate, stream in zip(self._gates, _streams(), strict=True):
            threading.Thread(target=gate.read_by, args=[stream], daemon=True).start()
        for gate in self._gates:
            gate.is_reached.wait()

    def open(self) -> None:
        for gate in self._gates:
            gate.is_open.set()

    @property
    def was_in_vain(self) -> bool:
        return any(gate.was_in_vain for gate in self._gates)

    def drop(self) -> None:
        """Return when MLX's threads have dropped the gates. No thread may drop a gate while Python exits."""
        dropped = [threading.Event() for _ in self._gates]
        for event in dropped:
            weakref.finalize(self._gates.pop(), event.set)
        for event in dropped:
            event.wait(LOOKS * PAUSE)


@cache
def _streams() -> list[mx.Stream]:
    return [mx.new_thread_unsafe_stream(mx.cpu) for _ in range(READERS)]


class StallingModel:
    """A model that predicts t + 1 after token t. Each step needs a number from a file, and MLX can read the file only
    when the next step begins.

    After code has waited for a step in vain, later steps do not stall.
    """

    def __init__(self) -> None:
        self.config = SimpleNamespace(max_position_embeddings=64, vocab_size=23, num_hidden_layers=1)
        self.layers = [None]
        self.num_steps = 0
        self.in_vain: list[int] = []  # the numbers of the steps that code has waited for in vain
        self._stop: Stop | None = None

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        return self.logits(self.hidden(tokens, cache))

    def hidden(self, tokens: mx.array, cache: Any) -> mx.array:
        self.go_on()
        self.num_steps += 1
        self._stop = None if self.in_vain else Stop()
        cache.advance(tokens.shape[1])
        number = mx.load(str(FILE))["model.norm.weight"][0].astype(mx.float32)
        return tokens[..., None] + 0 * number  # B, L, 1

    def logits(self, hidden: mx.array) -> mx.array:
        return (mx.arange(23) == hidden + 1).astype(mx.float32)  # B, L, V

    def go_on(self) -> None:
        """Release the last step that has begun."""
        if self._stop is not None:
            self._stop.open()
            if self._stop.was_in_vain:
                self.in_vain.append(self.num_steps)
            self._stop.drop()
            self._stop = None


class HeavyModel(StallingModel):
    """A model that keeps one large array per step, so that MLX's memory use tells how many steps have been
    computed."""

    SIZE = 2**22  # float32 values per array, far more than all other arrays of the test have

    def __init__(self) -> None:
        super().__init__()
        self._made: list[mx.array] = []
        gc.collect()  # frees arrays of earlier tests
        self._before = mx.get_active_memory()

    def hidden(self, tokens: mx.array, cache: Any) -> mx.array:
        self.num_steps += 1
        cache.advance(tokens.shape[1])
        self._made.append(tokens[..., None] + mx.zeros(self.SIZE))  # B, L, SIZE
        return self._made[-1][..., :1]

    def num_computed(self) -> int:
        """Wait until MLX has computed everything that was submitted. Return how many steps are computed by then."""
        mx.synchronize()
        return round((mx.get_active_memory() - self._before) / (4 * self.SIZE))


async def steps_submitted(impl: Any, count: int) -> list[int]:
    """For each of `count` tokens, return how many steps MLX has computed before the next token is requested."""
    with mx.stream(mx.cpu):
        model = HeavyModel()
        tokens = impl.generate.generate_ahead(model, [3], lambda logits, tokens: mx.argmax(logits, axis=-1), count)
        return [model.num_computed() for _ in tokens]


async def steps_ahead(impl: Any, count: int) -> list[list[int]]:
    """Return three lists: `count` tokens of `generate_ahead`; for each token, how many steps had begun when it arrived;
    and the numbers of the steps that code waited for too early, before the next step had begun."""
    found: list[int] = []
    begun: list[int] = []
    with mx.stream(mx.cpu):
        model = StallingModel()
        tokens = impl.generate.generate_ahead(model, [3], lambda logits, tokens: mx.argmax(logits, axis=-1), count)
        try:
            for _ in range(count):
                if model.num_steps == count:
                    model.go_on()  # no step follows the last one
                found.append(next(tokens))
                begun.append(model.num_steps)
        finally:
            model.go_on()
    return [found, begun, model.in_vain]

"""Loads the model that a command runs, quantises it, and builds it from the layers that the command asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..base.packages import REFERENCE
from ..base.reporting import is_learners
from ..native.arithmetic import allow_int8, chosen_line
from ..native.compiling import are_compiled, are_off, compile_for
from ..native.threads import check_threads, set_threads
from ..ui import CommandError, Messages, one_of, phrase, show_note, wrapped
from .needs import has_cache, is_written, open_stubs
from .package_protocols import Cache, Model, Sampler, Tokenizer

__all__ = ["AUTO", "BITS", "DTYPES", "LAYERS", "PLAIN", "LoadedModel", "Wanted", "is_on_cpu"]

BITS = (2, 4, 8)
DTYPES = ("float32", "bfloat16", "float16")
LAYERS = ("auto", "plain", "kernels", "tuned")
AUTO, PLAIN, KERNELS, TUNED = LAYERS
MOST_LETTERS = 1_000  # the most characters of an error about a damaged model that are shown
_ATTENTION = "attention"  # the kernel that a cache calls


@dataclass(frozen=True)
class Wanted:
    """The model, the package and the layers that a command asks for.

    Raises:
        CommandError: an option has an invalid value.
    """

    package: str  # tiny_llm or tiny_llm_ref
    model: str  # name or path
    dtype: str | None = None
    bits: int | None = None
    layers: str = PLAIN
    threads: int | None = None  # the number of threads on which kernels run
    is_fast: bool = False  # whether the tuned layers may round activations to 8 bits
    is_filled: bool = False  # whether the reference's code replaces stubs (fill.py)

    def __post_init__(self) -> None:
        if self.dtype not in (None, *DTYPES):
            raise CommandError("wrong_value", option="--dtype", expected=one_of(DTYPES), got=self.dtype)
        if self.bits not in (None, *BITS):
            raise CommandError("wrong_value", option="--bits", expected=one_of(BITS), got=self.bits)
        if self.layers not in LAYERS:
            raise CommandError("wrong_value", option="--layers", expected=one_of(LAYERS), got=self.layers)
        if self.threads is not None:
            check_threads(self.threads)
        if self.is_fast and self.layers != TUNED:
            raise CommandError("fast_of_tuned", got=self.layers)


class LoadedModel:
    """A model, its tokenizer and the generation loop. Raises a CommandError if the model cannot be loaded.

    option: the option that names the model. kernels: the kernels to compile in addition to those of the layers. path:
    the path of the checkpoint. sampling: the checkpoint's own sampling settings, keyed by the arguments' names in
    `make_sampler`. dtype: the dtype in which the model computes. layers: the layers that run: plain, kernels or tuned.
    lacks_kernels: whether `auto` means plain layers because the kernels are not compiled.
    """

    def __init__(self, wanted: Wanted, option: str = "--model", kernels: Sequence[str] = ()):
        self._wanted, self._option = wanted, option
        self.layers, self.lacks_kernels = _choose_layers(wanted)
        self._open = [] if wanted.is_filled else open_stubs(wanted.package)
        self._generation = self._module("generate")
        if sys.stderr.isatty():
            show_note(Messages()("engine_loading", model=wanted.model))
        self.model, self.tokenizer = self._load()
        self._is_quantised = isinstance(self.model.embed_tokens, self._module("quantize").QuantizedEmbedding)
        self._check_options()
        self.dtype = self._activations()
        if wanted.is_fast:
            allow_int8()
        compile_for(wanted.package, [*([] if wanted.layers == AUTO else self._kernels()), *kernels], Messages())
        self._replace_layers()
        if wanted.threads is not None and self.layers != PLAIN:
            set_threads(wanted.threads)

    def tokens(self, prompt: Sequence[int], sampler: Sampler, max_tokens: int) -> Iterable[int]:
        """Generate new tokens, one at a time: with a KV cache if the code of week 2 day 1 is written, otherwise with
        week 1's loop."""
        end = self.model.config.eos_token_ids
        if self.has_cache:
            new: Iterable[int] = self._generation.generate(self.model, prompt, sampler, max_tokens, end, self.cache())
        else:
            new = self._generation.generate_simple(self.model, prompt, sampler, max_tokens, end)
        return new

    @property
    def has_cache(self) -> bool:
        """Tell whether tokens are generated with a KV cache."""
        return has_cache(self._open) and hasattr(self._generation, "generate")

    def cache(self) -> Cache:
        """Make an empty KV cache. If the layers use kernels, a kernel computes the cache's attention."""
        made: Cache = self._module("kv_cache").KVCache(len(self.model.layers), **self.attention())
        return made

    def attention(self) -> dict[str, Any]:
        """Return the arguments that make a cache compute its attention with a kernel. Return {} if the layers are
        plain or the kernel is not written."""
        if self.layers == PLAIN or not self._is_written(_ATTENTION):
            return {}
        return {"attention": self._module("kernels.attention").flash_attention}

    def _kernels(self) -> list[str]:
        """Return the names of the C++ kernels that the layers call. On a GPU, Metal kernels replace most of these
        kernels."""
        given = (["packed", "block"] if self._is_quantised else ["unquantised"]) if self.layers == TUNED else []
        if self.layers == PLAIN or not is_on_cpu():
            return given
        names = [*self._module("optimise").KERNELS] if self.layers == KERNELS else []
        return given + [name for name in [*names, _ATTENTION] if self._is_written(name)]

    def _module(self, name: str) -> Any:
        return import_module(f"{self._wanted.package}.{name}")

    def _is_written(self, kernel: str) -> bool:
        return is_written(kernel, self._open)

    def _load(self) -> tuple[Model, Tokenizer]:
        """Load the model and the tokenizer. On the CPU, layers that are not tuned compute in float32 by default,
        because half precision is slower there."""
        wanted, models = self._wanted, self._module("models")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no warning that PyTorch is missing
        import mlx.core as mx

        dtype = wanted.dtype
        if dtype is None and self.layers != TUNED and is_on_cpu():
            dtype = "float32"
        try:
            self.path: Path = models.resolve(wanted.model)
            self.sampling: dict[str, Any] = import_module("tiny_llm_given.generation_config").sampling_defaults(
                self.path
            )
            if self._is_packed(self.path):
                packed: tuple[Model, Tokenizer] = models.load_quantized(self.path)
                return packed
            model, tokenizer = models.load(self.path, dtype and getattr(mx, dtype))
        except (OSError, ValueError) as error:
            if is_learners(error):
                raise
            raise CommandError("bad_model", option=self._option, reason=_short(error), exit_code=1) from None
        if wanted.bits is not None:
            self._module("quantize").quantize_model(model, bits=wanted.bits)
        return model, tokenizer

    def _is_packed(self, path: Path) -> bool:
        """Tell whether a quantised checkpoint's weights stay packed. Kernels need packed weights."""
        if self._wanted.bits is None and (self.layers == PLAIN or self._wanted.layers == AUTO):
            return False
        quantization = import_module("tiny_llm_given.config").ModelConfig.from_pretrained(path).quantization
        if quantization and self._wanted.bits is not None:
            raise CommandError("bits_packed", bits=quantization.get("bits", 4))
        return bool(quantization)

    def _check_options(self) -> None:
        dtype = self._wanted.dtype
        if self.layers == TUNED and self._is_quantised and dtype not in (None, "bfloat16"):
            raise CommandError("wrong_value", option="--layers tuned", expected=phrase("tuned_dtype"), got=dtype)
        if self._wanted.is_fast and not self._is_quantised:
            raise CommandError("fast_of_unquantised")

    def _activations(self) -> Any:
        """Return the dtype in which the model computes. Tuned layers keep weights in bfloat16, but compute in float32
        on the CPU by default if the weights are not quantised."""
        import mlx.core as mx

        if self.layers == TUNED and not self._is_quantised and self._wanted.dtype is None and is_on_cpu():
            return mx.float32
        return self.model.norm.weight.dtype

    def _replace_layers(self) -> None:
        if self.layers == KERNELS:
            optimise = self._module("optimise")
            names = [name for name in optimise.KERNELS if self._is_written(name)]
            self._report(names, [*optimise.KERNELS, _ATTENTION])
            optimise.optimise(self.model, names)
        if self.layers == TUNED:
            self._tune()

    def _tune(self) -> None:
        try:
            self._module("tuned").tune(self.model, self.dtype)
        except (ValueError, RuntimeError) as error:  # the weights do not fit, or no kernels run; the model is unchanged
            if self._wanted.layers == AUTO:
                self.layers = PLAIN
                self.model, self.tokenizer = self._load()
                self.dtype = self._activations()
                return
            if isinstance(error, ValueError):
                raise CommandError("tuned_refused", reason=error, exit_code=1) from None
            raise CommandError("layers_failed", layers=TUNED, reason=error, exit_code=1) from None
        if self._wanted.layers == TUNED:
            show_note(wrapped(chosen_line(Messages(), self._is_quantised)))

    def _report(self, written: Collection[str], names: Collection[str]) -> None:
        if missing := [name for name in names if not self._is_written(name)]:
            show_note(Messages()("engine_plain", names=", ".join(missing)))


def is_on_cpu() -> bool:
    """Tell whether MLX computes on the CPU by default."""
    import mlx.core as mx

    return bool(mx.default_device().type == mx.DeviceType.cpu)


def _choose_layers(wanted: Wanted) -> tuple[str, bool]:
    """Return the layers to use, and whether they are plain because the kernels are not compiled.

    With `auto`, the reference computes in float32 on the CPU with tuned layers, which give the results of plain layers
    up to rounding. `auto` never starts a compiler, so the kernels have to be compiled already.
    """
    if wanted.layers != AUTO:
        return wanted.layers, False
    is_usual = wanted.bits is None and wanted.dtype in (None, "float32")
    if wanted.package != REFERENCE or not is_usual or not is_on_cpu() or are_off():
        return PLAIN, False
    has_kernels = are_compiled(wanted.package, ["unquantised", _ATTENTION])
    return TUNED if has_kernels else PLAIN, not has_kernels


def _short(error: Exception) -> str:
    """Return the error's text, shortened, because names in a damaged checkpoint may be as long as the file."""
    said = str(error)
    return said if len(said) <= MOST_LETTERS else f"{said[:MOST_LETTERS]} …"

"""Recognises checkpoint formats that the course does not read, and says what to do instead. Given."""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from .checkpoint_files import read_json

__all__ = ["check_file", "check_folder", "check_quantization"]

_WANTED = "a folder in Hugging Face format: config.json, tokenizer.json and weights as .safetensors"
_GGUF = f"GGUF, llama.cpp's format; expected {_WANTED}. Take the model that it was made from, such as Qwen/Qwen3-0.6B"
_UNQUANTISED = (
    "expected weights that are not quantised, or that mlx-lm quantised (2, 3, 4, 5, 6 or 8 bits, mode affine). Take "
    "the model that it was made from, and quantise it with `./course main --bits 4`"
)
_GROUP_SIZES, _BITS = (16, 32, 64, 128), (2, 3, 4, 5, 6, 8)
_METHODS = {
    "awq": "AWQ",
    "gptq": "GPTQ",
    "bitsandbytes": "bitsandbytes",
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "compressed-tensors": "compressed-tensors",
    "mxfp4": "MXFP4",
}


def check_file(path: Path) -> None:
    """Raise ValueError if a path leads to a file, because a checkpoint is a folder."""
    if not path.is_file():
        return
    if path.suffix == ".gguf":
        raise ValueError(f"{path} is {_GGUF}")
    raise ValueError(f"{path} is a file; expected {_WANTED}; perhaps {path.parent}")


def check_folder(path: Path) -> None:
    """Raise ValueError if a folder holds a model in a format that the course does not read."""
    names = {file.name for file in path.iterdir()}
    if (path / "adapter_config.json").exists() and not (path / "config.json").exists():
        raise ValueError(f"{path} holds {_adapters(path, names)}")
    if any(name.endswith(".safetensors") for name in names):
        return
    if any(name.endswith(".gguf") for name in names):
        raise ValueError(f"{path} holds {_GGUF}")
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise ValueError(
            f"{path} holds weights in PyTorch's format; expected .safetensors. Convert them: load the model with "
            "Transformers and write it with `save_pretrained`, or use huggingface.co/spaces/safetensors/convert"
        )


def check_quantization(config: Mapping[str, Any]) -> None:
    """Raise ValueError if config.json describes a quantisation other than mlx-lm's."""
    ours, theirs = config.get("quantization") or {}, config.get("quantization_config") or {}
    mode, method = ours.get("mode", "affine"), None if ours else theirs.get("quant_method")
    if mode != "affine":
        raise ValueError(f"the weights are quantised in mlx-lm's mode {short(mode)}; {_UNQUANTISED}")
    for settings in (ours, *(own for own in ours.values() if isinstance(own, Mapping))):
        for name, known in (("group_size", _GROUP_SIZES), ("bits", _BITS)):
            if (got := settings.get(name, known[0])) not in known:
                raise ValueError(f"quantization: {name}: expected one of {known}, got {short(got)}")
    if method is not None:
        raise ValueError(f"the weights are quantised by {_METHODS.get(str(method), short(method))}; {_UNQUANTISED}")


def _adapters(path: Path, names: set[str]) -> str:
    base = read_json(path / "adapter_config.json")
    model = base.get("base_model_name_or_path") or base.get("model") or "MODEL"
    if "adapters.safetensors" in names:  # mlx-lm wrote the adapters
        merge = f"`mlx_lm.fuse --model {model} --adapter-path {path} --save-path NEW`"
    else:
        merge = f"PEFT's `merge_and_unload`, and write the model of {model} with `save_pretrained`"
    return f"LoRA adapters without the model that they change; expected a whole model. Merge them: {merge}"

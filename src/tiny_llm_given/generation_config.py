"""The settings that a checkpoint's authors recommend for sampling, from its generation_config.json. Given."""

import math
from pathlib import Path
from typing import Any, TypeAlias

from .checkpoint_files import read_json

__all__ = ["Sampling", "sampling_defaults"]

Sampling: TypeAlias = dict[str, float | int]  # arguments of `make_sampler`

_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def sampling_defaults(path: Path) -> Sampling:
    """Return the settings in a checkpoint directory's generation_config.json, without those that the file leaves out.

    "do_sample": false means that each token is the likeliest one, so it becomes temperature 0.

    Raises:
        ValueError: the file is damaged, or a setting is out of range.
    """
    file = path / "generation_config.json"
    contents = read_json(file) if file.exists() else {}
    found = {name: contents[name] for name in _NAMES if contents.get(name) is not None}
    for name, value in found.items():
        _check_setting(file, name, value)
    if contents.get("do_sample") is False:
        found["temperature"] = 0.0
    return found


def _check_setting(file: Path, name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    number = value if is_number else math.nan  # no comparison with NaN holds
    expected, holds = {
        "temperature": ("0 or more", 0 <= number < math.inf),
        "top_k": ("a whole number, 0 or more", number >= 0 and isinstance(value, int)),
        "top_p": ("more than 0 and at most 1", 0 < number <= 1),
        "min_p": ("from 0 to 1", 0 <= number <= 1),
        "repetition_penalty": ("more than 0", 0 < number < math.inf),
    }[name]
    if not holds:
        raise ValueError(f"{file}: {name}: expected {expected}, got {value!r}; correct it, or delete it")

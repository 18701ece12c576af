"""The settings that a checkpoint's authors recommend for sampling, from its generation_config.json. Given."""

from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from .checkpoint_files import read_json
from .serving.parameters import Parameters

__all__ = ["Sampling", "sampling_defaults"]

Sampling: TypeAlias = dict[str, float | int]  # arguments of `make_sampler`

_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def sampling_defaults(path: Path) -> Sampling:
    """Return the settings in a checkpoint directory's generation_config.json, keyed by name.

    "do_sample": false, which means that each token is the likeliest one, becomes the temperature 0.

    Raises:
        ValueError: the file is damaged, or a setting is out of range.
    """
    file = path / "generation_config.json"
    contents = read_json(file) if file.exists() else {}
    found = {name: contents[name] for name in _NAMES if contents.get(name) is not None}
    try:
        Parameters.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"{first['loc'][0]}: {first['msg']}, got {first['input']!r}"
        raise ValueError(f"{file}: {problem}; correct it, or delete it") from None
    if contents.get("do_sample") is False:
        found["temperature"] = 0.0
    return found

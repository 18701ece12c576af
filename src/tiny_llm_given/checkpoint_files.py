"""Reads the files of a checkpoint directory, which may be damaged or hostile. Given."""

import json
from pathlib import Path
from typing import Any

__all__ = ["read_json", "shards"]

_MOST_BYTES = 100_000_000  # in a JSON file: three times the size of the largest tokenizers


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not hold a JSON object, or is larger or more deeply nested than any checkpoint needs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES:,} bytes, got {size:,}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # bad JSON or bad UTF-8
        raise ValueError(f"{path} is not JSON: {error}") from error
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be read") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def shards(index: Path) -> list[Path]:
    """Return the weight files that a model.safetensors.index.json names. They must be in the folder of the index.

    Check the names in the index, which a hostile author may have chosen, but follow links to any place: the files that
    Hugging Face downloads are links into a folder `blobs`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the index is damaged, or names a file outside its folder.
    """
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{index}: expected an object under weight_map, got {type(weight_map).__name__}")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if "/" in name or not name.endswith(".safetensors"):
            raise ValueError(f"{index}: expected names of .safetensors files in the same folder, got {name[:100]!r}")
        if not (index.parent / name).is_file():
            raise FileNotFoundError(f"{index.parent} lacks {name}, which its index names")
    return [index.parent / name for name in names]

"""A small checkpoint, changes to its files, and the error that each change causes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from oracle_cases import Case, random_tokens
from safetensors.numpy import load_file, save_file

from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref.models import load
from tiny_llm_ref.qwen2 import CausalLM

__all__ = [
    "CASE",
    "INDEX",
    "WEIGHTS",
    "Change",
    "both",
    "check_error",
    "cut",
    "delete",
    "edit",
    "edit_weights",
    "empty",
    "folder",
    "scores",
    "shard",
    "write",
]

CASE = Case(untrained_config(), seed=0)
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return CASE.write(tmp_path / "checkpoint")


def edit(file: str = "config.json", drop: tuple[str, ...] = (), **changes: Any) -> Change:
    """Return a change that drops and sets keys of a JSON file."""

    def change(folder: Path) -> None:
        contents = json.loads((folder / file).read_text(encoding="utf-8")) | changes
        kept = {key: value for key, value in contents.items() if key not in drop}
        (folder / file).write_text(json.dumps(kept), encoding="utf-8")

    return change


def edit_weights(drop: str = "", **changes: Any) -> Change:
    """Return a change that drops the weights whose name contains `drop`, and sets others. In names, __ means a dot."""

    def change(folder: Path) -> None:
        weights = mx.load(str(folder / WEIGHTS))
        kept = {name: array for name, array in weights.items() if not drop or drop not in name}
        new = {name.replace("__", "."): mx.array(value) for name, value in changes.items()}
        mx.eval(kept)  # before their file is overwritten
        mx.save_safetensors(str(folder / WEIGHTS), kept | new)

    return change


def write(file: str, contents: bytes) -> Change:
    return lambda folder: (folder / file).write_bytes(contents)


def cut(length: int) -> Change:
    """Return a change that keeps the first `length` bytes of the weights' file or, if negative, drops the last
    bytes."""
    return lambda folder: write(WEIGHTS, (folder / WEIGHTS).read_bytes()[:length])(folder)


def delete(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def shard(folder: Path) -> None:
    """Split the weights into two files with an index."""
    weights = load_file(folder / WEIGHTS)
    halves = {f"model-0000{i + 1}-of-00002.safetensors": sorted(weights)[i::2] for i in range(2)}
    for file, names in halves.items():
        save_file({name: weights[name] for name in names}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, names in halves.items() for name in names}
    write(INDEX, json.dumps({"metadata": {}, "weight_map": where}).encode())(folder)
    delete(WEIGHTS)(folder)


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def both(first: Change, second: Change) -> Change:
    return lambda folder: (first(folder), second(folder))


def check_error(folder: Path, expected: str, load: Callable[[Path], object] = load) -> None:
    """Check that loading raises an expected type of error, with one line that names the file and the problem."""
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        load(folder)
    message = str(raised.value)
    assert type(raised.value) in (ValueError, FileNotFoundError)
    assert str(folder) in message
    assert expected in message
    assert "\n" not in message


def scores(model: CausalLM) -> mx.array:
    return model(mx.array(random_tokens(2, 9)))

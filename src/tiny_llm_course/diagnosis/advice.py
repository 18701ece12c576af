"""Gives one line of advice on an error from Python, MLX or NumPy whose own message does not say what to do."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from ..pytest_runs.test_run import Advice, Frame

__all__ = ["Frames", "of"]

Frames: TypeAlias = Sequence[Frame]  # the frames of a traceback, innermost last


def of(error: BaseException, frames: Frames, task: str) -> Advice | None:
    """Return advice on an error. Return None if there is nothing to add to the error's message.

    frames: the frames of the traceback in the package under test. Empty if the test itself raised the error.
    task: the id of the task whose test failed with the error.
    """
    explained = (explain(error, frames, task) for explain in _EXPLANATIONS)
    return next((advice for advice in explained if advice), None)


def _missing_function(error: BaseException, frames: Frames, task: str) -> Advice | None:
    """Explain that a test cannot find a name that the stub defined."""
    if frames or not isinstance(error, AttributeError):
        return None
    place = _own_name(error.obj)
    return ("advice_renamed", {"name": str(error.name), "place": place, "task": task}) if place else None


def _own_name(owner: object) -> str:
    """Return the name of a module or class of the course, or "" for any other object."""
    if isinstance(owner, ModuleType):
        return f"{owner.__name__.rpartition('.')[2]}.py" if owner.__name__.startswith("tiny_llm") else ""
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__name__ if kind.__module__.startswith("tiny_llm") else ""


def _other_signature(error: BaseException, frames: Frames, task: str) -> Advice | None:
    """Explain that a test cannot call a function, because the parameters are no longer those of the stub."""
    if frames or not isinstance(error, TypeError) or not re.search(r"\(\) (got an un|missing |takes )", str(error)):
        return None
    return "advice_signature", {"name": str(error).partition("(")[0].rpartition(".")[2], "task": task}


def _name_of_pytorch(error: BaseException, frames: Frames, task: str) -> Advice | None:
    if not isinstance(error, AttributeError) or error.name not in _IN_MLX:
        return None
    if type(error.obj).__module__ != "mlx.core" and getattr(error.obj, "__name__", "") != "mlx.core":
        return None
    return "advice_pytorch", {"name": error.name, "instead": _IN_MLX[error.name]}


_IN_MLX = {  # PyTorch's name -> the expression to write in MLX
    "unsqueeze": "mx.expand_dims(x, axis)",
    "permute": "x.transpose(0, 2, 1)",
    "masked_fill": "mx.where(condition, value, x)",
    "float": "x.astype(mx.float32)",
    "to": "x.astype(dtype)",
    "cat": "mx.concatenate([x, y], axis)",
    "bmm": "x @ y",
}


def _misspelt(error: BaseException, frames: Frames, task: str) -> Advice | None:
    if isinstance(error, AttributeError) and error.name:
        known = dir(getattr(error.obj, "__self__", error.obj) if isinstance(error.obj, super) else error.obj)
    elif isinstance(error, NameError) and error.name:
        known = [name for frame in _in_package(error, frames)[-1:] for name in {**frame.f_globals, **frame.f_locals}]
    else:
        return None
    close = get_close_matches(error.name, known, n=1, cutoff=0.6)
    return ("advice_misspelt", {"name": close[0]}) if close else None


def _truth_of_an_array(error: BaseException, frames: Frames, task: str) -> Advice | None:
    text = str(error)
    asks = bool(re.search(r"\b(if|elif|while|and|or|not|assert)\b", _line(frames)))
    if ("Only length-1 arrays" in text and asks) or "truth value of an array" in text:
        return "advice_truth", {}
    return None


def _all_axes_reversed(error: BaseException, frames: Frames, task: str) -> Advice | None:
    """Explain shapes that do not match because an `x.T` in the traceback also reverses the batch axes."""
    if not isinstance(error, ValueError) or not re.search(r"\[(matmul|broadcast_shapes|addmm)\]", str(error)):
        return None
    for name, array in _transposed(error, frames):
        if array.ndim > 2:
            return "advice_transpose", {
                "name": name,
                "shape": _sizes(array.shape),
                "reversed": _sizes(array.shape[::-1]),
            }
    return None


def _transposed(error: BaseException, frames: Frames) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each array that a function in the traceback transposes with `.T`."""
    for frame in _in_package(error, frames)[::-1]:
        for name in re.findall(r"\b(\w+)\.T\b", _source(frame)):
            if hasattr(value := frame.f_locals.get(name), "ndim"):
                yield name, value


def _numpy_in_mlx(error: BaseException, frames: Frames, task: str) -> Advice | None:
    """Explain that an MLX function was called with a NumPy array. The error, which nanobind raises, lists the types of
    the arguments at the end of its message."""
    if not isinstance(error, TypeError) or "incompatible function arguments" not in str(error):
        return None
    function, _, rest = str(error).partition("(")
    if not re.search(r"\bndarray\b", rest.partition("Invoked with types:")[2]):
        return None
    return "advice_numpy_in_mlx", {"call": "`@`" if function == "__matmul__" else f"`{function}`"}


def _mlx_in_numpy(error: BaseException, frames: Frames, task: str) -> Advice | None:
    if "PEP 3118 buffer format" in str(error):
        called = re.search(r"\b(?:np|numpy)\.([\w.]+)\(", _line(frames))
        return "advice_mlx_in_numpy", {"call": f"`np.{called[1]}`" if called else "NumPy"}
    if "Cannot interpret 'mlx.core" in str(error):
        return "advice_mlx_dtype", {}
    return None


def _calls_itself(error: BaseException, frames: Frames, task: str) -> Advice | None:
    if not isinstance(error, RecursionError) or not frames:
        return None
    name = frames[-1]["function"]
    inherited = f"self.{name}(" in _line(frames)
    return "advice_recursion_super" if inherited else "advice_recursion", {"name": name}


_EXPLANATIONS: list[Callable[[BaseException, Frames, str], Advice | None]] = [
    _missing_function,
    _other_signature,
    _name_of_pytorch,
    _misspelt,
    _truth_of_an_array,
    _all_axes_reversed,
    _numpy_in_mlx,
    _mlx_in_numpy,
    _calls_itself,
]


def _line(frames: Frames) -> str:
    """Return the line of the package under test that raised the error."""
    return frames[-1]["code"] if frames else ""


def _in_package(error: BaseException, frames: Frames) -> list[FrameType]:
    """Return Python's frame objects for these frames, since only frame objects have the variables."""
    files = {frame["file"] for frame in frames}
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename in files]


def _source(frame: FrameType) -> str:
    try:
        return inspect.getsource(frame.f_code)
    except OSError:
        return ""


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

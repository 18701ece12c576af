"""Objects of another process: calls are sent to that process, and values come back as data, never as code.

Plain values and arrays are copied. Any other object stays in its process and is represented by a `Proxy`, which
forwards calls and look-ups of attributes and items over a socket. While one side waits for an answer, the other side
may call back. Nothing is pickled.
"""

from __future__ import annotations

import builtins
import json
import socket
import struct
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

__all__ = ["ChangedError", "Connection", "GoneError", "Proxy", "RemoteError"]

MAX_MESSAGE, MAX_HEADER = 2**28, 2**24  # bytes; objects made from a header take many times the header's bytes
DTYPES = {
    str(dtype).removeprefix("mlx.core."): dtype
    for dtype in (
        *(mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64),
        *(mx.float16, mx.bfloat16, mx.float32, mx.complex64),
    )
}
ERRORS = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)}
KEPT_BACK = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType, type)
PRIVATE = ("_", "gi_", "cr_", "ag_", "f_", "tb_", "co_")  # prefixes of attributes that lead to the object's process


class GoneError(Exception):
    """The error raised when the other process has ended, has not answered in time, or has sent an invalid answer."""


class ChangedError(Exception):
    """The error raised when a submission's process changed an argument."""


class RemoteError(Exception):
    """An error in the other process that is not one of Python's built-in exceptions."""


class Proxy:
    """A stand-in for an object of the other process."""

    def __init__(self, connection: Connection, number: int):
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._connection.request("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._connection.request("set", self._number, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._connection.request("call", self._number, args, kwargs)

    def __iter__(self) -> Any:
        return self._connection.request("iter", self._number)

    def __next__(self) -> Any:
        return self._connection.request("next", self._number)

    def __len__(self) -> int:
        return int(self._connection.request("len", self._number))

    def __bool__(self) -> bool:
        return bool(self._connection.request("bool", self._number))

    def __getitem__(self, key: Any) -> Any:
        return self._connection.request("item", self._number, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._connection.request("set item", self._number, key, value)

    def __repr__(self) -> str:
        return f"<remote object {self._number}>"


class Connection:
    """One end of a socket between two processes.

    is_open: whether the other side may reach every object. The judge's end is not open, so a submission cannot reach
    modules, classes, frames or private attributes.
    """

    def __init__(self, stream: socket.socket, is_open: bool, home: Path | None = None):
        self._stream = stream
        self._is_open = is_open
        self._home = home  # the folder whose files appear in tracebacks
        self._objects: list[Any] = []  # objects that have a proxy on the other side
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, Proxy] = {}
        self._borrowed: list[tuple[Any, bytes]] = []  # lists and arrays in the judge's requests, and their bytes
        self._borrows = False
        self.received = 0  # total bytes of arrays from the other side
        self.is_broken = False  # whether an exchange was interrupted
        self.commands: dict[str, Callable[..., Any]] = {}

    def set_patience(self, seconds: float) -> None:
        """Set the number of seconds to wait for an answer."""
        self._stream.settimeout(seconds)

    def request(self, operation: str, *values: Any) -> Any:
        """Send a request to the other side. Return the answer, or raise the error that the other side reports. Answer
        the other side's requests while waiting.

        Raises:
            GoneError: there is no answer.
            ChangedError: the other side changed an argument.
        """
        self.is_broken = True  # until the answer is complete
        self._send("request", (operation, *values))
        while True:
            kind, content, changed = self._receive()
            self.is_broken = changed and kind == "request"  # such a request will not be answered
            if changed:  # the change is reported, but not copied back: a submission may not change its inputs
                raise ChangedError("an argument was changed: `x += y` and `x[...] = y` write into the caller's array")
            if kind == "value":
                return content
            if kind == "error":
                raise _error(content)
            self._answer(content)
            self.is_broken = True

    def serve(self) -> None:
        """Answer requests until the other side is gone."""
        while True:
            try:
                _, content, _ = self._receive()
            except GoneError:
                return
            self._answer(content)

    def forget(self) -> None:
        """Stop checking whether the last test's arguments are changed, since a new test begins."""
        self._borrowed.clear()

    def _answer(self, content: tuple[Any, ...]) -> None:
        try:
            value = self._perform(*content)
            self._send("value", value)
        except GoneError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) and not self._is_open:
                raise
            self._send("error", self._described(error))

    def _perform(self, operation: str, *values: Any) -> Any:
        if operation in self.commands:
            return self.commands[operation](*values)
        target = self._objects[values[0]]
        rest = values[1:]
        if operation in ("get", "set") and not self._is_open and str(rest[0]).startswith(PRIVATE):
            raise AttributeError(rest[0])
        match operation:
            case "get":
                return getattr(target, rest[0])
            case "set" if self._is_open:
                return setattr(target, rest[0], rest[1])
            case "call":
                return target(*rest[0], **rest[1])
            case "iter":
                return iter(target)
            case "next":
                return next(target)
            case "len":
                return len(target)
            case "bool":
                return bool(target)
            case "item":
                return target[rest[0]]
            case "set item" if self._is_open:
                target[rest[0]] = rest[1]
                return None
        raise PermissionError(f"a submission may not {operation} here")

    def _described(self, error: BaseException) -> dict[str, Any]:
        frames = []
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if self._home and Path(file).is_relative_to(self._home):
                frames.append([file, trace.tb_lineno, trace.tb_frame.f_code.co_name])
            trace = trace.tb_next
        return {"type": type(error).__name__, "text": str(error)[:10_000], "frames": frames[-10:]}

    def _send(self, kind: str, content: Any) -> None:
        blobs: list[bytes] = []
        changed = any(_bytes(value) != before for value, before in self._borrowed)
        header = json.dumps([kind, self._encode(content, blobs), changed, [len(blob) for blob in blobs]]).encode()
        message = struct.pack(">Q", len(header)) + struct.pack(">Q", sum(map(len, blobs))) + header + b"".join(blobs)
        try:
            self._stream.sendall(message)
        except OSError as error:
            raise GoneError(f"the submission's process has ended ({error})") from None

    def _receive(self) -> tuple[str, Any, bool]:
        """Receive a message. Return its kind, its content, and whether the other side changed an argument."""
        sizes = struct.unpack(">QQ", self._read(16))
        if sizes[0] > MAX_HEADER or sum(sizes) > MAX_MESSAGE:
            raise GoneError(
                f"header and arrays have {sizes} bytes; the limits of header and message: {(MAX_HEADER, MAX_MESSAGE)}"
            )
        header, data = self._read(sizes[0]), self._read(sizes[1])
        try:
            kind, content, changed, lengths = json.loads(header)
            blobs, start = [], 0
            for length in lengths:
                blobs.append(data[start : start + length])
                start += length
            self._borrows = self._is_open and kind == "request"
            return kind, self._decode(content, blobs), bool(changed)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise GoneError(f"a message that cannot be read ({error})") from None

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = self._stream.recv(min(size, 1 << 20))
            except TimeoutError:
                raise GoneError(f"no answer within {self._stream.gettimeout():g} seconds") from None
            except OSError as error:
                raise GoneError(f"the submission's process has ended ({error})") from None
            if not part:
                raise GoneError("the submission's process has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _encode(self, value: Any, blobs: list[bytes]) -> Any:
        """Encode a value as JSON, and append the bytes of arrays to `blobs`."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case mx.array():
                blobs.append(_bytes(value))
                return {"array": [len(blobs) - 1, str(value.dtype).removeprefix("mlx.core."), list(value.shape)]}
            case np.ndarray():
                blobs.append(np.ascontiguousarray(value).tobytes())
                return {"numpy": [len(blobs) - 1, value.dtype.str, list(value.shape)]}
            case np.generic():
                return value.item()
            case mx.Dtype():
                return {"dtype": str(value).removeprefix("mlx.core.")}
            case Path():
                return {"path": str(value)}
            case slice():
                return {"slice": [self._encode(part, blobs) for part in (value.start, value.stop, value.step)]}
            case list() if all(map(_is_data, value)):
                return {"list": [self._encode(part, blobs) for part in value]}
            case tuple():
                return {"tuple": [self._encode(part, blobs) for part in value]}
            case set() | frozenset() if all(map(_is_data, value)):
                return {"set": [self._encode(part, blobs) for part in value]}
            case dict() if all(map(_is_data, value.values())) or not self._is_open:
                return {"dict": [[self._encode(key, blobs), self._encode(v, blobs)] for key, v in value.items()]}
            case Proxy() if value._connection is self:
                return {"yours": value._number}
        return {"mine": self._number_of(value)}

    def _decode(self, value: Any, blobs: list[bytes]) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "array":
                decoded: Any = _array(blobs[content[0]], content[1], content[2])
                self.received += decoded.nbytes
            case "numpy":
                decoded = np.frombuffer(blobs[content[0]], np.dtype(content[1])).reshape(content[2]).copy()
            case "dtype":
                decoded = DTYPES[content]
            case "path":
                decoded = Path(content)
            case "slice":
                decoded = slice(*(self._decode(part, blobs) for part in content))
            case "list":
                decoded = [self._decode(part, blobs) for part in content]
            case "tuple":
                decoded = tuple(self._decode(part, blobs) for part in content)
            case "set":
                decoded = {self._decode(part, blobs) for part in content}
            case "dict":
                decoded = {self._decode(key, blobs): self._decode(part, blobs) for key, part in content}
            case "yours":
                decoded = self._objects[content]
            case "mine":
                decoded = self._proxies.setdefault(content, Proxy(self, content))
            case _:
                raise ValueError(f"unknown kind {kind!r}")
        if self._borrows and kind in ("array", "list"):
            self._borrowed.append((decoded, _bytes(decoded)))
        return decoded

    def _number_of(self, value: Any) -> int:
        if not self._is_open and isinstance(value, KEPT_BACK):
            raise PermissionError(f"a submission may not access a {type(value).__name__} of the tests")
        if id(value) not in self._numbers:
            self._objects.append(value)
            self._numbers[id(value)] = len(self._objects) - 1
        return self._numbers[id(value)]


def _is_data(value: Any) -> bool:
    plain = value is None or isinstance(
        value, bool | int | float | str | mx.array | np.ndarray | np.generic | slice | Path
    )
    if isinstance(value, dict):
        return all(map(_is_data, value.values()))
    return plain or (isinstance(value, list | tuple | set) and all(map(_is_data, value)))


def _bytes(value: Any) -> bytes:
    """Return the bytes of a list's or an array's values."""
    if isinstance(value, mx.array):
        value = value.view(mx.uint16) if value.dtype == mx.bfloat16 and value.ndim else value
        if value.dtype == mx.bfloat16:
            value = value[None].view(mx.uint16)
        return np.array(value).tobytes()
    return repr(value).encode()


def _array(data: bytes, name: str, shape: list[int]) -> mx.array:
    dtype = DTYPES[name]
    if dtype == mx.bfloat16:
        return mx.array(np.frombuffer(data, np.uint16)).view(mx.bfloat16).reshape(shape)
    kind = np.dtype(np.bool_ if name == "bool" else name)
    return mx.array(np.frombuffer(data, kind).reshape(shape), dtype=dtype)


def _error(content: dict[str, Any]) -> Exception:
    kind = ERRORS.get(content["type"])
    try:
        error = kind(content["text"]) if kind else RemoteError(f"{content['type']}: {content['text']}")
    except TypeError:  # UnicodeDecodeError and similar errors need more arguments
        error = RemoteError(f"{content['type']}: {content['text']}")
    error.frames = content["frames"]  # type: ignore[attr-defined]
    return error

"""Objects of another process: which cross over, which do not, and which a submission cannot reach."""

import socket
import sys
import threading
import types

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_course.grading.remote import DTYPES, ChangedError, Connection, GoneError, Proxy, RemoteError


class Empty:
    def __len__(self):
        return 0


class Remote:
    """Objects that the other process offers."""

    empty = Empty()

    def __init__(self):
        self.kept = None
        self.layers = [object(), object()]
        self.numbers = [1, 2, 3]

    def echo(self, value):
        return value

    def keep(self, value):
        self.kept = value

    def double(self, array):
        array *= 2

    def call_and_double(self, function):
        array = function()
        array *= 2
        return array

    def append(self, numbers):
        numbers.append(4)

    def count(self, stop):
        yield from range(stop)

    def call(self, function, *args, **kwargs):
        return function(*args, **kwargs)

    def get(self, target, name):
        return getattr(target, name)

    def fail(self, kind, text):
        raise kind(text) if isinstance(kind, type) else ValueError(text)

    def raise_own(self):
        raise type("OwnError", (Exception,), {})("own")

    def raise_value(self):
        raise ValueError("told")


@pytest.fixture
def remote():
    """Return a Remote in a submission's process, whose end is open. This end is the judge's."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    worker = Connection(theirs, is_open=True)
    worker.commands = {"remote": Remote}
    thread = threading.Thread(target=worker.serve, daemon=True)
    thread.start()
    judge = Connection(ours, is_open=False)
    yield judge.request("remote")
    ours.close()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        -(2**70),
        1.5,
        float("inf"),
        "鍵\ud800",
        [1, [2, "x"]],
        (1, (2,)),
        {3, 4},
        {"a": {"b": [1]}, 2: (None,)},
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(remote, value):
    got = remote.echo(value)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_arrays_keep_dtype_shape_and_bits(remote, name, shape):
    array = mx.array(np.random.RandomState(0).randint(0, 2, shape) * 1.5).astype(DTYPES[name])
    got = remote.echo(array)
    assert isinstance(got, mx.array)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.tolist() == array.tolist()


def test_other_values(remote):
    assert remote.echo(mx.bfloat16) == mx.bfloat16
    assert remote.echo(slice(1, None, 2)) == slice(1, None, 2)
    assert remote.echo(np.float32(1.5)) == 1.5
    assert np.array_equal(remote.echo(np.arange(3)), np.arange(3))
    assert np.isnan(remote.echo(float("nan")))


def test_other_objects_are_stood_for(remote):
    layers = remote.layers
    assert len(layers) == 2
    assert isinstance(layers[0], Proxy)
    assert layers[0] is next(iter(layers))
    layers[0] = "changed"
    assert remote.layers[0] == "changed"
    assert remote.numbers == [1, 2, 3]
    assert not hasattr(remote, "nothing")
    remote.kept = 5
    assert remote.kept == 5


def test_an_object_is_true_where_it_is_true_there(remote):
    assert remote
    assert not remote.empty


def test_own_objects_come_back_as_themselves(remote):
    mine = object()
    assert remote.echo(mine) is mine


def test_each_side_calls_the_other(remote):
    assert remote.call(lambda a, b: a + b, 1, b=2) == 3
    assert remote.call(lambda: remote.call(lambda: remote.echo(9))) == 9
    assert list(remote.count(4)) == [0, 1, 2, 3]
    assert next(remote.count(4)) == 0


@pytest.mark.parametrize(("name", "argument"), [("double", mx.array([1.0, 2.0])), ("append", [1, 2])], ids=str)
def test_a_changed_argument_is_an_error_and_stays_what_it_was(remote, name, argument):
    before = repr(argument)
    with pytest.raises(ChangedError, match="an argument was changed"):
        getattr(remote, name)(argument)
    assert repr(argument) == before


def test_what_a_callback_gave_may_be_changed(remote):
    """The object belongs to the submission."""
    assert remote.call_and_double(lambda: mx.array([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_errors_come_over(remote):
    with pytest.raises(ValueError, match="told"):
        remote.raise_value()
    with pytest.raises(RemoteError, match="OwnError: own"):
        remote.raise_own()
    with pytest.raises(ZeroDivisionError):
        remote.call(lambda: 1 / 0)
    with pytest.raises(TypeError):
        remote.echo()
    assert remote.echo(1) == 1, "the connection goes on"


@pytest.mark.parametrize("name", ["__globals__", "_secret", "gi_frame", "f_globals", "tb_frame", "co_code"])
def test_a_submission_cannot_ask_for_what_leads_into_the_judge(remote, name):
    def generator():
        yield 1

    with pytest.raises(AttributeError):
        remote.get(generator(), name)


@pytest.mark.parametrize(
    "value", [sys, Remote, types.SimpleNamespace(module=sys)], ids=["module", "class", "attribute"]
)
def test_a_submission_gets_no_modules_or_classes(remote, value):
    with pytest.raises(PermissionError):
        remote.call(lambda: value) if not isinstance(value, types.SimpleNamespace) else remote.get(value, "module")


@pytest.mark.parametrize(
    "message",
    [
        b"\xff" * 16,
        b"\x00" * 16,
        (2**25).to_bytes(8, "big") + bytes(8) + b"[",
        (5).to_bytes(8, "big") + bytes(8) + b"12345",
        (3).to_bytes(8, "big") + bytes(8) + b"\xff{[",
        (60).to_bytes(8, "big") + bytes(8) + b'["value", {"array": [9, "float32", [2]]}, [], []]'.ljust(60),
        (60).to_bytes(8, "big") + bytes(8) + b'["value", {"yours": 99}, [], []]'.ljust(60),
        (60).to_bytes(8, "big") + bytes(8) + b'["value", {"pickle": "x"}, [], []]'.ljust(60),
    ],
)
def test_nonsense_ends_the_connection(message):
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.sendall(message)
    with pytest.raises(GoneError):
        Connection(ours, is_open=False).request("module", "attention")


def test_silence_ends_the_connection():
    ours, theirs = socket.socketpair()
    ours.settimeout(0.1)
    connection = Connection(ours, is_open=False)
    with pytest.raises(GoneError, match="no answer within"):
        connection.request("module", "attention")
    assert connection.is_broken
    theirs.close()

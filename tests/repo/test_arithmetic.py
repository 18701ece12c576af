"""The number types of products with packed weights: each against float64, and the choice among them."""

import json
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_course.model.loaded_model import LoadedModel, Wanted
from tiny_llm_course.native.arithmetic import _told
from tiny_llm_course.setup import doctor
from tiny_llm_course.ui import CommandError, Messages
from tiny_llm_native import extension
from tiny_llm_native.compiler import CompileError
from tiny_llm_native.matmul import arithmetic, arithmetic_speeds, packed
from tiny_llm_native.matmul.arithmetic import (
    FEW,
    NAMES,
    SOME,
    VARIABLE,
    Choice,
    Speeds,
    candidates,
    choose,
    chosen,
    flags,
)
from tiny_llm_native.matmul.block import join
from tiny_llm_native.matmul.packed import pack, packed_matmul
from tiny_llm_ref.quantize import dequantize, quantize

ERROR = {"float32": 1e-5, "bfloat16": 5e-3, "int8": 1e-2}  # relative root mean square


device = pytest.fixture(lambda: None)  # the products run on the CPU


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Remember no earlier speeds, and measure only small products."""
    file = tmp_path / "arithmetic.json"
    monkeypatch.setattr(arithmetic, "_KEPT", file)
    for name, value in (("_FEW_OUT", 64), ("_MANY_OUT", 32), ("_REPEATS", 2)):
        monkeypatch.setattr(arithmetic_speeds, name, value)
    arithmetic._chosen.cache_clear()
    yield file
    arithmetic._chosen.cache_clear()


@pytest.fixture
def one_thread():
    before = extension.threads()
    extension.set_threads(1)
    yield
    extension.set_threads(before)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9, 16, 17, 32, 33, 70])
@pytest.mark.parametrize("panels", [5, 37])
@pytest.mark.parametrize("name", candidates())
def test_products(monkeypatch, one_thread, name, rows, panels):
    """Some groups differ in size, and one group is 0. A product may take 2 or 3 panels at once. One thread makes up to
    8 of 37 panels dense before it multiplies."""
    monkeypatch.setenv(VARIABLE, name)
    mx.random.seed(rows)
    levels, scales, biases = quantize(mx.random.normal((16 * panels, 320), mx.bfloat16), 64, 4)
    x = mx.random.normal((rows, 320)) * mx.repeat(mx.array([1.0, 0.01, 100, 0, 3]), 64)
    dense = dequantize(levels, scales.astype(mx.float32), biases.astype(mx.float32), 64, 4)
    right = np.array(x, np.float64) @ np.array(dense, np.float64).T
    error = np.array(packed_matmul(x, pack(levels, scales, biases)), np.float64) - right
    assert np.sqrt(np.mean(error**2) / np.mean(right**2)) < ERROR[name]


@pytest.mark.parametrize("name", candidates())
def test_the_largest_levels_and_numbers_do_not_overflow(monkeypatch, name):
    monkeypatch.setenv(VARIABLE, name)
    levels, scales = mx.full((16, 128 // 8), 0xFFFFFFFF, mx.uint32), mx.ones((16, 2), mx.bfloat16)
    panels = pack(levels, scales, mx.zeros_like(scales))
    for sign in (1, -1):
        found = packed_matmul(sign * mx.full((2, 128), 127.0), panels)
        assert found.tolist() == [[sign * 127.0 * 15 * 128] * 16] * 2


def test_joined_panels_are_next_to_each_other():
    panels = [mx.random.randint(0, 9, shape, mx.uint32) for shape in ((2, 3, 144), (5, 1, 144), (1, 1, 512))]
    joined = join(panels)
    mx.eval(joined)
    assert all(mx.array_equal(one, other) for one, other in zip(joined, panels, strict=True))
    addresses = [np.array(part, copy=False).ctypes.data for part in joined]
    assert np.diff(addresses).tolist() == [part.nbytes for part in joined[:-1]]


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1, SOME, SOME + 1])
def test_each_number_of_rows_has_its_number_type(monkeypatch, rows):
    """Each range of rows has another number type, as far as the processor has several."""
    mx.random.seed(1)
    panels = pack(*quantize(mx.random.normal((16, 64), mx.bfloat16), 64, 4))
    x = mx.random.normal((rows, 64))

    def product(choice):
        monkeypatch.setattr(packed, "flags", lambda: flags(choice))
        return packed_matmul(x, panels)

    names = candidates()
    choice = Choice(*(names[i % len(names)] for i in range(3)))
    own = choice.few if rows <= FEW else choice.some if rows <= SOME else choice.many
    found = product(choice)
    for name in names:
        assert mx.array_equal(found, product(Choice.always(name))) == (name == own)


@pytest.fixture
def permitted():
    """Return a function that simulates a processor with AMX, and a system that answers whether it permits AMX."""
    with pytest.MonkeyPatch.context() as patch:

        def forget():
            arithmetic.may_use_tiles.cache_clear()
            arithmetic._flags.cache_clear()

        def simulate(answer, instructions=("BFLOAT16", "TILES")):
            patch.setattr(arithmetic.sys, "platform", "linux")
            patch.setattr(arithmetic.ctypes, "CDLL", lambda name: SimpleNamespace(syscall=lambda *arguments: answer))
            patch.setattr(arithmetic, "_instructions", lambda: list(instructions))
            forget()

        yield simulate
    forget()


@pytest.mark.parametrize(("answer", "struct"), [(0, "Bfloat16Tiles"), (-1, "Bfloat16")])
def test_amx_needs_the_permission_of_the_system(permitted, answer, struct):
    permitted(answer)
    names = [f"-DTINY_LLM_{rows}=" for rows in ("FEW", "SOME", "MANY")]
    assert flags(Choice.always("bfloat16")) == (f"{names[0]}Bfloat16", *(name + struct for name in names[1:]))


def test_amx_needs_a_processor_that_has_it(permitted):
    permitted(0, ["BFLOAT16"])
    assert not arithmetic.may_use_tiles()


def test_speeds_with_amx_count_only_where_it_is_permitted(kept, permitted):
    permitted(0)
    arithmetic.remember(Speeds(1, {"float32": 1.0}))
    assert arithmetic.remembered()
    permitted(-1)
    assert arithmetic.remembered() is None


def test_the_environment_names_one(monkeypatch):
    for name in candidates():
        monkeypatch.setenv(VARIABLE, name)
        assert chosen() == Choice.always(name)


def test_wrong_names(monkeypatch):
    monkeypatch.setenv(VARIABLE, "int4")
    with pytest.raises(ValueError, match="expected one of exact, fast, float32, bfloat16, int8, got 'int4'"):
        chosen()
    arithmetic._chosen.cache_clear()
    monkeypatch.setattr(arithmetic, "_instructions", list)
    monkeypatch.setenv(VARIABLE, "int8")
    with pytest.raises(ValueError, match="TINY_LLM_ARITHMETIC: this processor has no instructions for int8"):
        chosen()


def test_the_fastest_is_chosen_for_each_number_of_rows():
    few = {"float32": 10, "bfloat16": 20, "int8": 20.5}  # int8 is hardly faster than bfloat16
    speeds = Speeds(2, few, {"float32": 30, "bfloat16": 20, "int8": 60}, {"float32": 30, "bfloat16": 90, "int8": 60})
    assert choose(speeds, "exact") == Choice("bfloat16", "float32", "bfloat16")
    assert choose(speeds, "fast") == Choice("bfloat16", "int8", "bfloat16")
    only = {"float32": 1.0}
    assert choose(Speeds(2, only, only, only, {"int8": "no"}), "fast") == Choice.always("float32")


def test_measured_once(monkeypatch, kept):
    monkeypatch.setenv(VARIABLE, "fast")
    first = chosen()
    speeds = arithmetic.remembered()
    assert speeds is not None
    assert set(speeds.few) == set(speeds.some) == set(speeds.many) == set(candidates())
    assert choose(speeds, "fast") == first
    monkeypatch.setattr(arithmetic_speeds, "measure", lambda: pytest.fail("it was measured again"))
    arithmetic._chosen.cache_clear()
    assert chosen() == first


@pytest.mark.parametrize("text", ["", "{}", '{"kernels": 1, "speeds": {}}', "[1]"])
def test_a_file_of_other_kernels_or_a_damaged_one_counts_for_nothing(kept, text):
    kept.write_text(text)
    assert arithmetic.remembered() is None
    speeds = Speeds(1, {"float32": 1.0}, {"float32": 2.0}, {"float32": 3.0})
    arithmetic.remember(speeds)
    assert arithmetic.remembered() == speeds
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"kernels": "others"}))
    assert arithmetic.remembered() is None


def test_an_arithmetic_that_does_not_compile_is_left_out(monkeypatch, kept):
    load = arithmetic_speeds.kernel_without_fallback

    def refuse(source, name, options=()):
        if options:
            raise CompileError("panels.h:1: no\nand more")
        return load(source, name, options)

    monkeypatch.setattr(arithmetic_speeds, "kernel_without_fallback", refuse)
    monkeypatch.setattr(arithmetic_speeds, "candidates", lambda: NAMES)
    speeds = arithmetic_speeds.measure()
    assert set(speeds.few) == {"float32"}
    assert speeds.problems == dict.fromkeys(NAMES[1:], "panels.h:1: no")


# ----------------------------------------------------------------------------------------------------- in commands

TUNED = {"model": "story", "bits": 4, "layers": "tuned"}


@pytest.fixture
def measured(kept):
    """Simulate a machine on which 8 bits are faster for few rows."""
    slower = {"float32": 90e9, "int8": 80e9}
    arithmetic.remember(Speeds(2, {"float32": 10e9, "int8": 20e9}, slower, slower))


@pytest.mark.parametrize(
    ("variable", "is_fast", "said"),
    [
        ("exact", False, "float32"),
        (None, True, "int8 for up to 8 tokens at once, float32 for more"),
        ("float32", True, "float32"),  # the environment wins
    ],
)
def test_commands_say_what_is_chosen(monkeypatch, measured, capsys, variable, is_fast, said):
    monkeypatch.delenv(VARIABLE)
    if variable:
        monkeypatch.setenv(VARIABLE, variable)
    monkeypatch.setattr(arithmetic, "candidates", {"exact": NAMES[:1], "float32": NAMES[:1], "fast": NAMES}.get)
    LoadedModel(Wanted("tiny_llm_ref", is_fast=is_fast, **TUNED))
    assert f"tuned layers compute in {said}\n" in capsys.readouterr().err


def test_three_number_types_are_told():
    choice = Choice("float32", "int8", "bfloat16")
    said = "float32 for up to 8 tokens at once, int8 for up to 32, bfloat16 for more"
    assert _told(choice, Messages("en")) == said
    assert "一度に 8 トークンまでは float32、32 トークンまでは int8、それより多いときは bfloat16" in _told(
        choice, Messages("ja")
    )


def test_a_wrong_name_ends_a_command(monkeypatch):
    monkeypatch.setenv(VARIABLE, "int4")
    with pytest.raises(CommandError, match=r"TINY_LLM_ARITHMETIC: expected one of exact, fast, .* got 'int4'"):
        LoadedModel(Wanted("tiny_llm_ref", **TUNED))


def test_fast_is_for_tuned_layers():
    with pytest.raises(CommandError, match="--fast: expected --layers tuned --bits 4, got --layers plain"):
        Wanted("tiny_llm_ref", "story", is_fast=True)


@pytest.mark.parametrize(("problems", "state"), [({}, "ok"), ({"int8": "panels.h:1: no"}, "warning")])
def test_doctor_shows_speeds_and_choice(kept, problems, state):
    assert doctor._arithmetic(Messages("en")).found == "not measured yet; ./course roofline measures it"
    arithmetic.remember(Speeds(2, {"float32": 12.34e9}, {"float32": 45e9}, {"float32": 56e9}, problems))
    check = doctor._arithmetic(Messages("en"))
    assert (check.name, check.state) == ("arithmetic", state)
    assert "float32: 12.3 GB/s with 1 row, 45 GFLOP/s with 16 rows, 56 GFLOP/s with 64 rows; " in check.found
    assert ("int8 does not compile: panels.h:1: no; " in check.found) == bool(problems)
    assert check.found.endswith("chosen: float32; chosen with --fast: float32")

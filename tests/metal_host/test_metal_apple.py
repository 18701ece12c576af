"""metal_host agrees with a Mac's record (scripts/record_on_mac.py), once there is one."""

import json
from pathlib import Path
from typing import Any

import pytest
from broken_kernels import BROKEN, REFUSED
from metal_idioms import IDIOMS
from test_metal_spaces import MIXED, RIGHT

RECORD = Path(__file__).with_name("apple.json")
# metal_host refuses these, and Apple's compiler may accept them.
STRICTER = {"fence", "own_unwritten", "texture", "matrix", "function_constant"}
# metal_host finds these errors at run time, and Apple's compiler earlier.
EARLIER = {"too_deep", "too_much_threadgroup"}


if not RECORD.exists():
    pytest.skip("no Mac has run these kernels: scripts/record_on_mac.py", allow_module_level=True)
APPLE: Any = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom_is_right_on_a_gpu(name):
    assert APPLE["idioms"][name].get("right"), APPLE["idioms"][name]


@pytest.mark.parametrize(
    ("part", "name", "is_accepted"),
    [
        *(("refused", name, False) for name in REFUSED if name not in STRICTER),
        *(("mixed", name, False) for name in MIXED),
        *(("right", name, True) for name in RIGHT),
        *(("broken", name, name not in EARLIER) for name in BROKEN),
    ],
)
def test_apples_compiler_agrees(part, name, is_accepted):
    assert APPLE[part][name]["accepted"] == is_accepted, APPLE[part][name]

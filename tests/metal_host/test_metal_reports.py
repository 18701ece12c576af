"""What machines have reported (`./course doctor --report`) of the kernels in this folder is what metal_host says."""

import json
from pathlib import Path
from typing import Any

import pytest
from broken_kernels import BROKEN, REFUSED
from metal_idioms import IDIOMS
from test_metal_spaces import MIXED, RIGHT

REPORTS = sorted((Path(__file__).parents[2] / "benches/results/machines").glob("*.json"))
SOURCES: dict[str, Any] = {"refused": REFUSED, "mixed": MIXED, "right": RIGHT, "broken": BROKEN}
# metal_host refuses these where Apple's compiler need not.
STRICTER = {"fence", "own_unwritten", "texture", "matrix", "function_constant"}
# Broken when they run, as metal_host sees it; Apple's compiler finds it before.
EARLIER = {"too_deep", "too_much_threadgroup"}
# Functions that differ in address spaces only, which metal_host cannot tell apart.
ALIKE = {"overloaded"}


def disagreements(report: dict[str, Any]) -> list[str]:
    """The kernels with which something else happened than metal_host says."""
    results, has_metal = report["kernels"]["results"], report["gpu"] is not None
    found = [
        f"idioms {name}: {one}" for name, one in results["idioms"].items() if name in IDIOMS and not one.get("right")
    ]
    for part, sources in SOURCES.items():
        for name in sources.keys() & results[part].keys():
            is_accepted = results[part][name]["accepted"]
            if is_accepted not in expected(part, name, has_metal):
                found.append(f"{part} {name}: {results[part][name]}")
    return found


def expected(part: str, name: str, has_metal: bool) -> set[bool]:
    """Whether a compiler may accept a kernel, and may refuse it."""
    if part == "refused" and name in STRICTER and has_metal:
        return {True, False}
    if part == "right":
        return {has_metal or name not in ALIKE}
    return {part == "broken" and not (has_metal and name in EARLIER)}


def test_there_are_reports() -> None:
    assert REPORTS


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.stem)
def test_a_report_agrees_with_metal_host(file: Path) -> None:
    report = json.loads(file.read_text(encoding="utf-8"))
    assert disagreements(report) == []
    assert report["kernels"]["results"]["idioms"].keys() >= {"saxpy", "tiled_matmul"}


@pytest.mark.parametrize(
    ("part", "name", "change", "has_metal"),
    [
        ("idioms", "saxpy", {"right": False}, False),
        ("refused", "double", {"accepted": True}, True),
        ("mixed", "cast", {"accepted": True}, True),
        ("right", "auto", {"accepted": False}, True),
        ("right", "overloaded", {"accepted": False}, True),
        ("broken", "too_deep", {"accepted": True}, True),
        ("broken", "read_past_end", {"accepted": False}, True),
    ],
)
def test_a_disagreement_is_found(part: str, name: str, change: dict[str, Any], has_metal: bool) -> None:
    report = json.loads(REPORTS[0].read_text(encoding="utf-8"))
    if has_metal:
        report["gpu"] = {"device_name": "Apple M9"}
        for early in EARLIER:
            report["kernels"]["results"]["broken"][early]["accepted"] = False
        for alike in ALIKE:
            report["kernels"]["results"]["right"][alike]["accepted"] = True
    assert disagreements(report) == []
    report["kernels"]["results"][part][name] |= change
    (found,) = disagreements(report)
    assert found.startswith(f"{part} {name}: ")

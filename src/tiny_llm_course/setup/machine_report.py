"""A machine's report: the results of kernels, tests and measurements, in one JSON file that is valid after each result.

Other people read the report, so it is in English, and names no person and no folder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.whole_files import write_whole

__all__ = ["FORMAT", "Found", "MachineReport", "count_idioms", "count_tests", "has_failed", "head", "speed_of"]

Found = dict[str, Any]

FORMAT = "tiny-llm machine report 1"
WRONG = ("refused", "mixed")  # groups of kernels that a compiler should refuse
FIGURE = "w2d7"  # the stage of `bench` whose speed is in the report's head


class MachineReport:
    """A report to which results are added. After each result, the file contains everything so far."""

    def __init__(self, file: Path, about: Mapping[str, Any]):
        self._file = file
        self.found: Found = {"format": FORMAT, "head": [], "is_complete": False, **about}
        self.write()

    def part(self, name: str, **about: Any) -> Found:
        """Begin a part of the report, and return the part. The caller adds results to the part, and calls `write` after
        each result."""
        self.found[name] = {**about, "is_complete": False}
        self.write()
        part: Found = self.found[name]
        return part

    def finish(self) -> None:
        self.found["is_complete"] = True
        self.write()

    def write(self) -> None:
        self.found["head"] = list(head(self.found))
        write_whole(self._file, (json.dumps(self.found, indent=1, ensure_ascii=False) + "\n").encode())


def head(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences at the beginning of a report."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    yield f"{found['machine']}; {found['system']}; {versions}; course {found['course']}"
    gpu = found["gpu"]
    yield f"GPU with Metal: {gpu['device_name']}" if gpu else "GPU with Metal: none. Metal kernels ran in an emulator."
    if kernels := found.get("kernels"):
        yield from _about_kernels(kernels)
    if tests := found.get("tests"):
        counts = count_tests(tests)
        yield f"Tests of Metal kernels: {counts['passed']} of {counts.total()} passed{_end(tests)}"
    if bench := found.get("bench"):
        yield _about_bench(bench)
    if not found["is_complete"]:
        yield "The report is not complete."


def _about_kernels(kernels: Found) -> Iterator[str]:
    right, count = count_idioms(kernels)
    yield f"Metal idioms: {right} of {count} compute what NumPy computes{_end(kernels)}"
    wrong = [each for part in WRONG for each in kernels["results"].get(part, {}).values()]
    if wrong:
        refused = sum(not each["accepted"] for each in wrong)
        yield f"Metal kernels that do not follow the language: {refused} of {len(wrong)} refused by the compiler"


def _about_bench(bench: Found) -> str:
    if reason := bench.get("left_out"):
        return f"Speeds were not measured: {reason}"
    speed = speed_of(bench)
    return f"Decoding on the GPU: {f'{speed:,.0f} tokens/s' if speed else 'not measured'}{_end(bench)}"


def _end(part: Found) -> str:
    return "" if part["is_complete"] else f"; ended early: {part.get('problem') or 'interrupted'}"


def count_idioms(kernels: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of idioms that compute the same results as NumPy, and the number of all idioms."""
    idioms = kernels["results"].get("idioms", {}).values()
    return sum(bool(each.get("right")) for each in idioms), len(idioms)


def count_tests(tests: Mapping[str, Any]) -> Counter[str]:
    """Count the tests by outcome."""
    return Counter(outcome for of_task in tests["results"].values() for outcome in of_task.values())


def speed_of(bench: Mapping[str, Any]) -> float | None:
    """Return how many tokens per second the model decodes with all kernels. Return None if this speed was not
    measured."""
    rows = {row["stage"]: row for row in bench.get("model", [])}
    decode: float | None = rows.get(FIGURE, {}).get("decode")
    return decode


def has_failed(found: Mapping[str, Any]) -> bool:
    """Tell whether a kernel computed something different from NumPy, a test failed, or a part ended early."""
    parts = [found[name] for name in ("kernels", "tests", "bench") if name in found]
    if not found["is_complete"] or not all(part["is_complete"] for part in parts):
        return True
    right, count = count_idioms(found["kernels"])
    counts = count_tests(found["tests"])
    return right < count or counts["passed"] < counts.total()

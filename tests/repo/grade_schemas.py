"""The rules of the formats that `tiny-llm grade` writes, as the programs that read these formats publish them.

Each function fails with a message about what is wrong. The functions check formats only; other tests check contents.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from typing import Any

__all__ = ["check_classroom", "check_csv", "check_exercism", "check_gradescope", "check_json", "check_junit"]
__all__ += ["check_text"]


def check_text(text: str) -> None:
    """Check that a text is valid Unicode, without characters that control a terminal or reorder a line."""
    text.encode()
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t\r"}
    assert not bad, bad
    assert not re.search("[\u202a-\u202e\u2066-\u2069\ufffe\uffff]", text)


# ------------------------------------------------------------------------------------------------------------- CSV


def check_csv(text: str) -> list[dict[str, str]]:
    """Check a table by RFC 4180: all rows have equally many cells; and by OWASP: no spreadsheet computes a cell."""
    check_text(text)
    assert text.count("\n") == text.count("\r\n") + sum(cell.count("\n") for row in _rows(text) for cell in row)
    rows = _rows(text)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0])
    computed = [cell for row in rows for cell in row if re.match("[=+@\t\r\n＝＋－＠]|-(?![0-9.]+$)", cell)]
    assert not computed
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def _rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


# ----------------------------------------------------------------------------------------------------------- JUnit

# junit-10.xsd of Jenkins' xUnit plugin. For each element: its attributes, its required attributes, the elements
# allowed in it in any order and number, and whether it may contain text. All attributes but `time` of suites are any
# text.
JUNIT = {
    "testsuites": ("name time tests failures errors", "", "testsuite", False),
    "testsuite": (
        "name tests failures errors group time skipped timestamp hostname id package file log url",
        "name tests failures errors",
        "testsuite properties testcase system-out system-err",
        False,
    ),
    "testcase": (
        "name time classname group",
        "name",
        "skipped error failure rerunFailure rerunError flakyFailure flakyError system-out system-err",
        False,
    ),
    **dict.fromkeys(("failure", "error", "skipped"), ("type message", "", "", True)),
    **dict.fromkeys(("system-out", "system-err"), ("", "", "", True)),
}
SUREFIRE_TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check_junit(text: str) -> ElementTree.Element:
    """Check the schema, and that the numbers in attributes are the numbers of elements."""
    check_text(text)
    root = ElementTree.fromstring(text.encode())  # as a file: its first line says the encoding
    assert root.tag in ("testsuites", "testsuite")
    _check_element(root)
    for suite in root.iter("testsuite"):
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))
    return root


def _check_element(element: ElementTree.Element) -> None:
    attributes, required, children, has_text = JUNIT[element.tag]
    assert set(required.split()) <= set(element.attrib) <= set(attributes.split()), element.attrib
    if element.tag.startswith("testsuite") and "time" in element.attrib:
        assert SUREFIRE_TIME.fullmatch(element.attrib["time"])
    for child in element:
        assert child.tag in children.split(), child.tag
        assert not (child.tail or "").strip()
        _check_element(child)
    assert has_text or not (element.text or "").strip()


# ------------------------------------------------------------------------------------------------------------ JSON


def check_json(text: str) -> Any:
    """Parse JSON by RFC 8259, like readers that reject NaN and lone surrogates, and use the last of equal keys."""
    check_text(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    json.dumps(found, ensure_ascii=False).encode()
    return found


VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")


def check_gradescope(text: str) -> Any:
    """Check results.json by https://gradescope-autograders.readthedocs.io/en/latest/specs/"""
    found = check_json(text)
    texts = {"output": str, "extra_data": dict, "leaderboard": list, "tests": list}
    choices = {"visibility": VISIBILITY, "stdout_visibility": VISIBILITY}
    choices |= dict.fromkeys(("output_format", "test_output_format", "test_name_format"), FORMATS)
    _check_fields(found, {"score": float, "execution_time": float} | texts, choices)
    assert "score" in found or all("score" in test for test in found["tests"])
    kinds = {"score": float, "max_score": float, "name": str, "number": str, "output": str, "tags": list}
    of_test = {"status": ("passed", "failed"), "visibility": VISIBILITY, "name_format": FORMATS}
    for test in found.get("tests", []):
        _check_fields(test, kinds | {"extra_data": dict}, of_test | {"output_format": FORMATS})
        assert 0 <= test["score"] <= test["max_score"]
    return found


def check_exercism(text: str) -> Any:
    """Check results.json by https://exercism.org/docs/building/tooling/test-runners/interface"""
    found = check_json(text)
    _check_fields(found, {"version": int, "message": str, "tests": list}, {"status": ("pass", "fail", "error")})
    assert found["version"] in (2, 3)
    assert bool(found.get("message")) == (found["status"] == "error")
    assert len((found.get("message") or "").encode()) <= 65_535
    if found["status"] == "error":
        assert not found.get("tests")
        return found
    kinds = {"name": str, "message": str, "output": str, "test_code": str} | (
        {"task_id": int} if found["version"] == 3 else {}
    )
    for test in found["tests"]:
        _check_fields(test, kinds, {"status": ("pass", "fail", "error")})
        assert {"name", "status", "test_code"} <= set(test)
        assert bool(test.get("message")) == (test["status"] != "pass")
        assert len((test.get("message") or "").encode()) <= 65_535
        assert len(test.get("output") or "") <= 500
    assert found["tests"]
    assert (found["status"] == "pass") == all(test["status"] == "pass" for test in found["tests"])
    return found


def check_classroom(text: str) -> Any:
    """Check the fields that classroom-resources/autograding-grading-reporter reads from a variable, adds up and
    logs."""
    found = check_json(base64.b64decode(base64.b64encode(text.encode())).decode())
    statuses = ("pass", "fail", "error")
    _check_fields(found, {"version": int, "max_score": float, "tests": list}, {"status": statuses})
    assert found["version"] == 1
    kinds = {"name": str, "score": float, "message": str, "test_code": str, "filename": str}
    for test in found["tests"]:
        _check_fields(test, kinds | {"line_no": int, "duration": float}, {"status": statuses})
        printed = f"❌ {test['name']}\nError: {test['message']}\n"
        assert not [line for line in printed.splitlines() if line.strip().startswith("::") or "##[" in line]
    assert sum(test["score"] for test in found["tests"]) <= found["max_score"]
    passed = [test["status"] == "pass" for test in found["tests"]]
    assert passed == [bool(test["score"]) for test in found["tests"]]
    assert (found["status"] == "pass") == all(passed)
    return found


def _check_fields(found: Any, kinds: dict[str, type], choices: dict[str, tuple[str, ...]]) -> None:
    """Check that only these fields exist, each of its type (an integer is a number), one of the choices, or null."""
    assert isinstance(found, dict)
    assert set(found) <= {*kinds, *choices}, set(found)
    for key, value in found.items():
        if key in choices:
            assert value in choices[key], (key, value)
        elif value is not None:
            kind = (int, float) if kinds[key] is float else kinds[key]
            assert isinstance(value, kind), (key, value)
            assert not isinstance(value, bool)

"""The READMEs' table of machines, made from the reports in the repository, shows which reports are missing."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from machines import READMES, REPORTS, kind_of, read_reports, summary, table, with_table  # noqa: E402

from tiny_llm_course.setup.machine_report import FORMAT, has_failed, head  # noqa: E402

MISSING = {"en": "no report yet", "ja": "報告はまだありません"}


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.fixture
def mac() -> dict[str, Any]:
    """Return a report as a Mac would send it."""
    report = copy.deepcopy(read_reports()[0])
    report |= {
        "machine": "Apple M9, 8 processors, Darwin arm64",
        "system": "macOS 26.1, arm64",
        "gpu": {"device_name": "Apple M9"},
        "bench": {
            "is_complete": True,
            "model": [{"stage": "w2d1", "decode": 20.0}, {"stage": "w2d7", "decode": 81.6}],
            "kernels": [{"kernel": "rope", "sizes": "E=1", "rung": "w2d5.5", "seconds": 2e-6}],
        },
    }
    return report


@pytest.mark.parametrize("name", READMES)
def test_a_readme_has_the_table_of_the_reports(name: str) -> None:
    """If this fails: python scripts/machines.py"""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert with_table(text, table(read_reports(), READMES[name])) == text


@pytest.mark.parametrize("file", sorted(REPORTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_kept_report_is_complete_and_names_nobody(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    report = json.loads(text)
    assert report["format"] == FORMAT
    assert report["is_complete"]
    assert report["head"] == list(head(report))
    assert all(report["versions"][name] for name in ("python", "mlx"))
    assert "/home/" not in text
    assert "/Users/" not in text
    assert " with changes" not in report["course"], "nobody else can run that code"


@pytest.mark.parametrize("language", MISSING)
def test_kinds_of_machines_without_a_report_are_missing(language: str, mac: dict[str, Any]) -> None:
    rows = table([], language).splitlines()[2:]
    assert [MISSING[language] in row for row in rows] == [True] * 3
    rows = table([mac], language).splitlines()[2:]
    assert [MISSING[language] in row for row in rows] == [False, True, True]
    assert "Apple M9 |" in rows[0]
    assert "| 82 |" in rows[0]


@pytest.mark.parametrize(
    ("system", "machine", "kind"),
    [
        ("macOS 15.5, arm64", "Apple M4, 10 processors, Darwin arm64", "mac"),
        ("Ubuntu 24.04.3 LTS, glibc 2.39", "Neoverse-N1, 4 processors, Linux aarch64", "arm64"),
        ("Debian GNU/Linux 12 (bookworm), glibc 2.36", "AMD EPYC, 2 processors, Linux x86_64", "x86_64"),
    ],
)
def test_kinds_of_machines(system: str, machine: str, kind: str) -> None:
    assert kind_of({"system": system, "machine": machine}) == kind


def test_a_summary(mac: dict[str, Any]) -> None:
    assert not has_failed(mac)
    text = summary(mac)
    assert text.startswith("# This machine: everything passes\n")
    assert "| rope | E=1 | w2d5.5 | 2.0 |" in text
    assert "What failed" not in text
    mac["tests"]["failures"] = {"test_task_5_a[gpu]": "expected 1\ngot 2"}
    mac["tests"]["results"]["w2d2.5"]["test_task_5_a[gpu]"] = "failed"
    mac["kernels"]["results"]["idioms"]["saxpy"] = {"accepted": False, "said": "no such function"}
    text = summary(mac)
    assert text.startswith("# This machine: something failed\n")
    assert "- test `test_task_5_a[gpu]`\n      \n      expected 1\n      got 2" in text
    assert "- idiom `saxpy`: {'accepted': False, 'said': 'no such function'}" in text
    del mac["tests"], mac["bench"]
    mac["is_complete"] = mac["kernels"]["is_complete"] = False
    assert summary(mac).startswith("# This machine: something failed\n")


def test_the_workflow_shows_a_macs_report() -> None:
    job = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    steps = ["./course doctor --report machine.json", 'machines.py --summary machine.json >> "$GITHUB_STEP_SUMMARY"']
    places = [job.index(step) for step in steps]
    assert places == sorted(places)
    assert job.count("if: runner.os == 'macOS' && !cancelled()") == 3

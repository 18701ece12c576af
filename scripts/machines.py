#!/usr/bin/env python3
"""Write a table of machines into both READMEs: what was verified on each machine, and which reports are missing.

python scripts/machines.py                  write the table of benches/results/machines into the READMEs
python scripts/machines.py --summary FILE   print one report in Markdown, for the summary of a CI job
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tiny_llm_course.setup.machine_report import count_idioms, count_tests, has_failed, speed_of  # noqa: E402

__all__ = ["READMES", "kind_of", "read_reports", "summary", "table", "with_table"]

REPORTS = ROOT / "benches" / "results" / "machines"
READMES = {"README.md": "en", "README.ja.md": "ja"}
BEGIN, END = "<!-- machines: begin (python scripts/machines.py) -->", "<!-- machines: end -->"
KINDS = {  # the kinds of machines on which the course is meant to run
    "mac": {"en": "Mac with Apple silicon", "ja": "Apple シリコンの Mac"},
    "arm64": {"en": "Linux on arm64", "ja": "arm64 の Linux"},
    "x86_64": {"en": "Linux on x86-64", "ja": "x86-64 の Linux"},
}
TEXTS = {
    "head": {
        "en": "| machine | Metal kernels run | small kernels | week 2's tests | GPU, tokens/s | versions |",
        "ja": "| マシン | Metal カーネルの実行先 | 小さなカーネル | 第 2 週のテスト | GPU、トークン/秒 | バージョン |",
    },
    "missing": {"en": "no report yet", "ja": "報告はまだありません"},
    "gpu": {"en": "on the GPU", "ja": "GPU"},
    "emulator": {"en": "in an emulator, on the CPU", "ja": "CPU 上のエミュレーター"},
    "share": {"en": "{good} of {count} pass", "ja": "{count} 件中 {good} 件が合格"},
    "none": {"en": "–", "ja": "–"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--summary", type=Path, metavar="FILE", help="the report to print")
    options = parser.parse_args()
    if options.summary:
        print(summary(json.loads(options.summary.read_text(encoding="utf-8"))))
        return
    for name, language in READMES.items():
        file = ROOT / name
        text = with_table(file.read_text(encoding="utf-8"), table(read_reports(), language))
        file.write_text(text, encoding="utf-8")


def read_reports() -> list[dict[str, Any]]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(REPORTS.glob("*.json"))]


def kind_of(report: Mapping[str, Any]) -> str:
    """Return the kind of machine that made a report, as a key of KINDS."""
    if report["system"].startswith("macOS"):
        return "mac"
    return "arm64" if re.search(r"aarch64|arm64", report["machine"]) else "x86_64"


def table(reports: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return a table with a row for each report, and for each kind of machine without a report."""
    return "\n".join(_rows(reports, language))


def _rows(reports: Sequence[Mapping[str, Any]], language: str) -> Iterator[str]:
    texts = {name: text[language] for name, text in TEXTS.items()}
    yield texts["head"]
    yield "|---|---|---|---|---|---|"
    for kind, name in KINDS.items():
        of_kind = [report for report in reports if kind_of(report) == kind]
        if not of_kind:
            yield f"| {name[language]} | **{texts['missing']}** | | | | |"
        yield from (_row(report, name[language], texts) for report in of_kind)


def _row(report: Mapping[str, Any], kind: str, texts: Mapping[str, str]) -> str:
    chip = report["machine"].partition(",")[0]
    right, count = count_idioms(report["kernels"])
    tests = count_tests(report["tests"])
    speed = speed_of(report["bench"])
    cells = [
        f"{kind}: {chip}",
        texts["gpu" if report["gpu"] else "emulator"],
        texts["share"].format(good=right, count=count),
        texts["share"].format(good=tests["passed"], count=tests.total()),
        f"{speed:,.0f}" if speed else texts["none"],
        f"MLX {report['versions']['mlx']}, Python {report['versions']['python']}; {report['date']}",
    ]
    return f"| {' | '.join(cells)} |"


def with_table(readme: str, text: str) -> str:
    """Return a README with this table between the README's two markers."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def summary(report: Mapping[str, Any]) -> str:
    """Return a report in Markdown: its head, the failures, and the speeds."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"# This machine: {'something failed' if has_failed(report) else 'everything passes'}\n"
    yield from (f"- {line}" for line in report["head"])
    wrong = [name for name, found in report["kernels"]["results"].get("idioms", {}).items() if not found.get("right")]
    failures = report.get("tests", {}).get("failures", {})
    if wrong or failures:
        yield "\n## What failed\n"
        yield from (f"- idiom `{name}`: {report['kernels']['results']['idioms'][name]}" for name in wrong)
        for name, message in failures.items():
            yield f"- test `{name}`"
            yield from (f"      {line}" for line in ["", *message.splitlines()])
    if kernels := report.get("bench", {}).get("kernels"):
        yield from ["\n## Speeds\n", "| kernel | sizes | which | µs |", "|---|---|---|---|"]
        for row in kernels:
            speed = f"{row['seconds'] * 1e6:,.1f}" if row["seconds"] else "–"
            yield f"| {row['kernel']} | {row['sizes']} | {row['rung']} | {speed} |"


if __name__ == "__main__":
    main()

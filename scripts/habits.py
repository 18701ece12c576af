#!/usr/bin/env python3
"""Finds habits that make readers stop (habits.toml) in the course's texts, and prints new sentences with such habits.

python scripts/habits.py                    print the findings that scripts/habits.json does not count yet
python scripts/habits.py --list [FILE ...]  print all findings, in these files or everywhere
python scripts/habits.py --table [REV ...]  count the findings of each habit, now and in these revisions
python scripts/habits.py --update           write the current counts into scripts/habits.json

The exit code is always 0, because only a reader can decide whether a sentence is good.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prose import Sentence, kind_of, sentences

from tiny_llm_course.tasks.toml import read_toml

ROOT = Path(__file__).resolve().parents[1]
COUNTS = "scripts/habits.json"
WORD = re.compile(r"[\w◦]")

Counts = dict[str, dict[str, dict[str, int]]]  # keyed by kind of text, then habit, then file; zeros are left out


@dataclass(frozen=True)
class Habit:
    """An entry of habits.toml."""

    name: str
    language: str
    instead: str
    pattern: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    kinds: tuple[str, ...]
    opens: bool
    words: int | None

    def may_be_in(self, sentences: list[Sentence]) -> bool:
        """Tell whether any of these sentences may have the habit. Most files have few habits, and one search of all
        sentences is faster than a check of each sentence."""
        return self.pattern is None or bool(self.pattern.search("\n".join(one.masked for one in sentences)))

    def is_in(self, sentence: Sentence) -> bool:
        """Tell whether a sentence of the habit's language has the habit."""
        if (self.opens and not sentence.opens) or (self.kinds and sentence.kind not in self.kinds):
            return False
        if self.words is not None:
            return len([word for word in sentence.masked.split() if WORD.search(word)]) > self.words
        found = self.pattern is not None and self.pattern.search(sentence.masked)
        return bool(found) and not (self.unless and self.unless.search(sentence.masked))


@dataclass(frozen=True)
class Finding:
    """A sentence that has a habit."""

    habit: Habit
    sentence: Sentence

    def __str__(self) -> str:
        place = f"{self.sentence.file}:{self.sentence.line}"
        return f"{place}: {self.habit.name}: {_shortened(self.sentence.text)}\n    instead: {self.habit.instead}"


def read_habits(file: Path = ROOT / "scripts" / "habits.toml") -> list[Habit]:
    """Read the habits from habits.toml."""
    return [
        Habit(
            entry["name"],
            entry["language"],
            entry["instead"],
            re.compile(entry["pattern"], re.MULTILINE) if "pattern" in entry else None,
            re.compile(entry["unless"]) if "unless" in entry else None,
            tuple(entry.get("kinds", ())),
            entry.get("opens", False),
            entry.get("words"),
        )
        for entry in read_toml(file)["habits"]
    ]


def find(texts: Iterable[tuple[str, str]], habits: list[Habit]) -> list[Finding]:
    """Find the sentences with habits. texts: each file's path in the repository, and the file's content."""
    findings = []
    for file, content in texts:
        by_language: dict[str, list[Sentence]] = defaultdict(list)
        for sentence in sentences(file, content):
            by_language[sentence.language].append(sentence)
        for habit in habits:
            of_language = by_language[habit.language]
            if habit.may_be_in(of_language):
                findings += [Finding(habit, sentence) for sentence in of_language if habit.is_in(sentence)]
    return sorted(findings, key=lambda finding: (finding.sentence.file, finding.sentence.line))


def read_texts(root: Path, revision: str | None = None, only: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """Read the files with text for readers, now or in a revision. Return each file's path and content."""
    listing = ["ls-tree", "-r", "--name-only", "-z", revision] if revision else ["ls-files", "-z"]
    files = [file for file in _git(root, *listing).split("\0") if kind_of(file)]
    if only is not None:
        files = sorted({*files} & {*only})
    if revision is None:
        return [(file, (root / file).read_text(encoding="utf-8")) for file in files if (root / file).is_file()]
    asked = "".join(f"{revision}:{file}\n" for file in files)
    printed = subprocess.run(
        ["git", "cat-file", "--batch"], cwd=root, input=asked.encode(), capture_output=True, check=True
    ).stdout
    texts = []
    for file in files:
        header, _, printed = printed.partition(b"\n")
        size = int(header.split()[2])
        texts.append((file, printed[:size].decode("utf-8")))
        printed = printed[size + 1 :]
    return texts


def count(findings: Iterable[Finding]) -> Counts:
    """Count findings, in the form of habits.json."""
    counts: Counts = defaultdict(lambda: defaultdict(Counter))
    for finding in findings:
        counts[finding.sentence.kind][finding.habit.name][finding.sentence.file] += 1
    return counts


def complaints(root: Path, habits: list[Habit]) -> list[str]:
    """Return a line for each new sentence with a habit that has more findings than habits.json counts. Add a line if
    other habits have fewer findings."""
    findings = find(read_texts(root), habits)
    known: Counts = json.loads((root / COUNTS).read_text(encoding="utf-8"))
    now = count(findings)
    lines, fewer, base = [], 0, None
    pairs = {(kind, name) for counts in (known, now) for kind, by_name in counts.items() for name in by_name}
    for kind, name in sorted(pairs):
        before, after = known.get(kind, {}).get(name, {}), now.get(kind, {}).get(name, {})
        excess = sum(after.values()) - sum(before.values())
        fewer += max(0, -excess)
        if excess > 0:
            base = _Base(root, habits) if base is None else base
            these = [f for f in findings if f.sentence.kind == kind and f.habit.name == name]
            lines += map(str, _new(these, before, after, excess, base))
    if fewer:
        lines.append(f"{COUNTS} counts {fewer} findings more than there are now: write the new counts with --update")
    return lines


def _new(
    findings: list[Finding], before: Mapping[str, int], after: Mapping[str, int], excess: int, base: _Base
) -> list[Finding]:
    """Return the findings that are not in git's version of the texts. If these are too few to explain the excess,
    return all findings in files whose count grew."""
    new = [finding for finding in findings if base.lacks(finding)]
    if len(new) >= excess:
        return new
    return [f for f in findings if after[f.sentence.file] > before.get(f.sentence.file, 0)]


class _Base:
    """The texts as they were when habits.json was last committed, if git has that commit."""

    def __init__(self, root: Path, habits: list[Habit]) -> None:
        revision = _git(root, "log", "-1", "--format=%H", "--", COUNTS).strip()
        self._changed = {*_git(root, "diff", "--name-only", "-z", revision, "--").split("\0")} if revision else set()
        old = find(read_texts(root, revision, self._changed), habits) if revision else []
        self._known = {(finding.habit.name, finding.sentence.text) for finding in old}

    def lacks(self, finding: Finding) -> bool:
        is_known = (finding.habit.name, finding.sentence.text) in self._known
        return finding.sentence.file in self._changed and not is_known


def table(root: Path, habits: list[Habit], revisions: list[str]) -> str:
    """Return a Markdown table of the findings per habit and kind of text, in each revision and now."""
    states: list[Any] = [count(find(read_texts(root, revision), habits)) for revision in [*revisions, None]]
    kinds = [kind for kind in ("book", "catalogue", "messages", "docstrings") if any(kind in state for state in states)]

    def cells(names: Iterable[str]) -> list[str]:
        totals = [[sum(sum(s.get(kind, {}).get(n, {}).values()) for n in names) for s in states] for kind in kinds]
        return [" > ".join(map(str, numbers)) for numbers in [*totals, [*map(sum, zip(*totals, strict=True))]]]

    rows = [[habit.name, *cells([habit.name])] for habit in habits]
    rows = [["habit", *kinds, "all"], ["---"] * (len(kinds) + 2), *rows, ["all", *cells([h.name for h in habits])]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shortened(text: str, most: int = 240) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


def _git(root: Path, *words: str) -> str:
    """Return what git prints, or "" if git fails, for example because there is no commit."""
    run = subprocess.run(["git", "-c", "core.quotePath=false", *words], cwd=root, capture_output=True, text=True)
    return "" if run.returncode else run.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the current counts into scripts/habits.json")
    parser.add_argument("--list", nargs="*", metavar="FILE", help="print all findings, in these files or everywhere")
    parser.add_argument("--table", nargs="*", metavar="REV", help="count the findings, now and in these revisions")
    options = parser.parse_args()
    habits = read_habits()
    if options.table is not None:
        print(table(ROOT, habits, options.table))
    elif options.list is not None:
        print(*find(read_texts(ROOT, only=options.list or None), habits), sep="\n")
    elif options.update:
        counts = json.dumps(count(find(read_texts(ROOT), habits)), ensure_ascii=False, indent=1, sort_keys=True)
        (ROOT / COUNTS).write_text(counts + "\n", encoding="utf-8")
    else:
        print("\n".join(complaints(ROOT, habits)) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())

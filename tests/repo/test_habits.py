"""Habits that stop readers are found, with their places, and new ones give a warning. The check never fails."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tiny_llm_course.tasks.toml import read_toml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import habits  # noqa: E402

HABITS = habits.read_habits()
TABLE = read_toml(ROOT / "scripts/habits.toml")["habits"]
EXAMPLES = [(entry, key, text) for entry in TABLE for key in ("found", "right") for text in entry[key]]

PAGE = """# Behind the seam

A paragraph of several lines,
which ends here. Somebody
waits in `behind`, and "behind".

```sh
echo behind
```

```{answer} 1
- Pages behind it.
```

```{output} behind
behind
```

$$
behind
$$

| what | where |
|---|---|
| rows | behind |
"""
CATALOGUE = '''
[[tasks]]
id = "w9d9.1"

[[tasks.hints]]
en = "Look behind it."
ja = "誰も見ません。"

[[tasks.hints]]
en = """
loop behind it"""
ja = """
誰も"""

[[tasks.mistakes]]
id = "behind"
edits = [["behind", "en = behind"]]
en = "A {behind}.\\nIt lies there."
'''
MODULE = '''"""Behind."""

import typer

HELP = typer.Option(help="Nobody reads it.")


class Table:
    """A table."""

    @property
    def size(self):
        """The number of rows."""

    def row(self):
        """The row.

        index: behind the first.

            code behind

        Shapes: behind
        """
        return "behind"  # behind
'''


device = pytest.fixture(lambda: None)  # nothing here computes on one


def found(file: str, content: str) -> list[tuple[str, int]]:
    return [(finding.habit.name, finding.sentence.line) for finding in habits.find([(file, content)], HABITS)]


@pytest.mark.parametrize(("entry", "key", "text"), EXAMPLES, ids=[f"{key}: {text[:40]}" for _, key, text in EXAMPLES])
def test_a_habit_is_found_and_the_right_sentence_is_not(entry, key, text):
    if entry["language"] == "ja":
        names = found("book/locale/ja/LC_MESSAGES/x.po", f'msgid "x"\nmsgstr "{text}"\n')
    elif entry.get("opens"):
        names = found("src/x/y.py", f'def f():\n    """{text}"""\n')
    else:
        names = found("book/x.md", f"{text}\n")
    assert [entry["name"] in dict(names), bool(names)] == [key == "found"] * 2


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (
            "book/x.md",
            PAGE,
            [("behind", 1), ("nobody, somebody", 4), ("behind", 12), ("behind", 25)],
        ),
        (
            "src/tiny_llm_course/catalogue/week_9_day_9.toml",
            CATALOGUE,
            [("behind", 6), ("誰が", 7), ("lies", 18)],
        ),
        (
            "src/tiny_llm_course/x.py",
            MODULE,
            [("behind", 1), ("nobody, somebody", 5), ("docstring begins with a noun", 16), ("behind", 18)],
        ),
        ("src/tiny_llm/x.py", MODULE, []),
        ("src/x/y.py", "def f(:", []),
        ("tests/x.md", PAGE, []),
    ],
)
def test_only_prose_is_read(file, content, expected):
    assert found(file, content) == expected


@pytest.fixture
def repository(tmp_path):
    """Return a repository with a page that has two recorded habits."""
    write(tmp_path, "one.md", "Nobody reads behind it.\n")
    write(tmp_path, "two.md", "It lies there.\n")
    known = {"book": {"behind": {"book/one.md": 1}, "nobody, somebody": {"book/one.md": 1}, "lies": {"book/two.md": 1}}}
    (tmp_path / "scripts").mkdir()
    (tmp_path / habits.COUNTS).write_text(json.dumps(known))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / "book").mkdir(exist_ok=True)
    (root / "book" / name).write_text(text)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def named(root: Path) -> list[str]:
    return [line.partition("\n")[0] for line in habits.complaints(root, HABITS)]


def test_new_sentences_are_named(repository):
    git(repository, "commit", "-qm", "Begin")
    assert named(repository) == []
    write(repository, "one.md", "Nobody reads behind it.\n\nIt is called behind the event.\n")
    assert named(repository) == ["book/one.md:3: behind: It is called behind the event."]
    git(repository, "commit", "-qam", "Change")
    assert named(repository) == ["book/one.md:3: behind: It is called behind the event."]


def test_without_history_all_of_a_file_with_more_are_named(repository):
    write(repository, "one.md", "Nobody reads behind it.\n\nIt is called behind the event.\n")
    assert named(repository) == [
        "book/one.md:1: behind: Nobody reads behind it.",
        "book/one.md:3: behind: It is called behind the event.",
    ]


def test_a_sentence_may_move(repository):
    write(repository, "one.md", "")
    write(repository, "two.md", "Nobody reads behind it.\n\nIt lies there.\n")
    assert named(repository) == []


def test_a_better_state_is_to_be_written_down(repository):
    write(repository, "one.md", "It comes after the event.\n")
    assert named(repository) == [
        f"{habits.COUNTS} counts 2 findings more than there are now: write the new counts with --update"
    ]


def warn_of_new_habits(root: Path) -> None:
    for line in habits.complaints(root, HABITS):
        warnings.warn(line, stacklevel=1)


def test_new_habits_are_a_warning(repository):
    write(repository, "two.md", "It lies there.\n\nThat lies here.\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_new_habits(repository)
    assert [str(warning.message) for warning in caught] == [
        "book/two.md:1: lies: It lies there.\n    instead: is, is stored",
        "book/two.md:3: lies: That lies here.\n    instead: is, is stored",
    ]


def test_habits_of_this_repository():
    """They give a warning only, because a reader decides whether a sentence is good."""
    warn_of_new_habits(ROOT)

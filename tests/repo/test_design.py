"""Links, files, commands and gates that the maintainers' pages name exist."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from learner import ROOT

from tiny_llm_course.ui.command_table import ALL

sys.path.append(str(ROOT / "scripts"))

import gate_table

DESIGN = "docs/design"
TUTOR = "src/tiny_llm/AGENTS.md"
PAGES = ("CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md", TUTOR)
PAGES += tuple(sorted(f"{DESIGN}/{file.name}" for file in (ROOT / DESIGN).iterdir()))
TOP = ("benches", "book", "docs", "notebooks", "scripts", "src", "tests")
PATH = re.compile(rf"(?:{'|'.join(TOP)}|\.\w+)(?:/[\w.-]+)+/?")
ENDS = (".cpp", ".css", ".h", ".html", ".js", ".json", ".metal", ".py", ".sh", ".toml", ".yml")
PLACEHOLDER = re.compile(r"NAME|_W_")
ABSENT = {"build/book", "build/site", ".tiny-llm/grades", ".tiny-llm/old"}  # made by a build, or in a learner's clone


device = pytest.fixture(lambda: None)  # nothing here computes on one


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(name: str) -> list[str]:
    """Return the words in code spans and code blocks."""
    text = text_of(name)
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [*re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text), *(line for block in blocks for line in block.split("\n"))]


def anchors(name: str) -> set[str]:
    """Return the anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", text_of(name), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_file_and_a_heading(page: str) -> None:
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(page)):
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.is_file() or (anchor and anchor not in anchors(str(target.resolve().relative_to(ROOT)))):
            broken.append(link)
    assert broken == []


def test_the_index_has_a_line_for_each_page() -> None:
    listed = re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\) \| \S.* \|$", text_of(f"{DESIGN}/README.md"), re.MULTILINE)
    assert sorted(listed) == sorted(file.name for file in (ROOT / DESIGN).glob("*.md") if file.name != "README.md")


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    """This holds for whole paths, and for names of files without a path, which some folder must contain."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = {path.rpartition("/")[2] for path in listed.stdout.splitlines()}
    words = [word.strip("`,;:()").rstrip(".") for code in code_of(page) for word in code.split()]
    paths = [word for word in words if PATH.fullmatch(word) and not PLACEHOLDER.search(word) and word not in ABSENT]
    missing = [path for path in paths if not (ROOT / path).exists()]
    plain = [word for word in words if re.fullmatch(r"[a-z][\w-]*\.\w+", word) and word.endswith(ENDS)]
    assert missing + [word for word in plain if word not in names] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_names_are_there(page: str) -> None:
    commands = [name for code in code_of(page) for name in re.findall(r"\./course ([a-z-]+)", code)]
    assert [name for name in commands if name not in (*ALL, "python")] == []


def test_assistants_of_maintainers_know_every_gate() -> None:
    section = text_of("AGENTS.md").partition("## Gates")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall(r"`([a-z-]+)`", row)) == sorted(
        gate.name for gate in gate_table.all_gates()
    )


def test_assistants_of_learners_are_sent_on() -> None:
    """An assistant that starts in the root reads the root's page first."""
    first = text_of("AGENTS.md").partition("\n## ")[0]
    assert f"]({TUTOR})" in first.partition("CONTRIBUTING")[0]

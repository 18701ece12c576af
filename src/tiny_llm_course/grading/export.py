"""`tiny-llm export --student DIR`: writes a course to hand out, without solutions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from ..base.places import ROOT
from ..base.reporting import reporting
from ..base.whole_files import write_whole
from ..learner.git import IDENTITY, Git
from ..learner.workspace import Workspace
from ..tasks.regions import BUILT, code_files
from ..tasks.stubs import make_stub
from ..ui import CommandError, Lang, show
from ..ui.command_table import NEED_SOLUTIONS

__all__ = ["export"]

# Files that a student does not need or must not have. Paths are relative to the root; folders end with a slash.
WITHHELD = (
    *("src/tiny_llm_ref/", "scripts/", "tests/repo/", "tests/metal_host/", "tests/train/"),
    "src/tiny_llm_models/training/",
    *(".ci/", ".github/", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/", "notebooks/", "progress.txt"),
    "src/tiny_llm_course/grading/handout/",
)
EXPERIMENTS = re.compile(r"book/week_\d+/\w+\.py")  # the only parts of the book that a student needs
HANDOUT = Path(__file__).parent / "handout"  # the files that students read instead of the course's README
TUTOR = "src/tiny_llm/AGENTS.md"  # asks coding assistants to tutor; assistants look for this file at the root, too


def export(
    student: Annotated[
        Path, typer.Option("--student", metavar="DIR", help="A folder that does not exist yet, or is empty.")
    ],
    lang: Lang = None,
) -> None:
    """Write a course to hand out: stubs, tests and commands, but no reference, mistakes or maintainers' files."""
    with reporting(lang) as words:
        workspace = Workspace()
        if student.exists() and (not student.is_dir() or any(student.iterdir())):
            raise CommandError("export_folder", folder=student)
        names = [name for name in _names() if _handed_out(name)]
        for name in names:
            _copy(name, student / name)
        for file in code_files(workspace.reference):
            stub = make_stub(file.read_text(encoding="utf-8"), filename=file.name).encode()
            path = file.relative_to(workspace.reference)
            write_whole(student / "src" / "tiny_llm" / path, stub)
            write_whole(student / "src" / "tiny_llm_course" / "pristine" / path, stub)
        for readme in sorted(HANDOUT.iterdir()):
            shutil.copy(readme, student)
        if TUTOR in names:
            shutil.copy(ROOT / TUTOR, student)
        _commit(student)
        show(words("export_wrote", folder=student, count=len(names)))


def _handed_out(name: str) -> bool:
    if BUILT in Path(name).parts:
        return False
    if name.startswith("book/"):
        return EXPERIMENTS.fullmatch(name) is not None
    return not name.startswith(WITHHELD)


def _names() -> list[str]:
    """Return the paths of the course's files: the files in git or, without git, all files that no program generated."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if run.returncode == 0 and run.stdout:
        return [name for name in run.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    made = {".venv", ".git", ".tiny-llm", "__pycache__", "build", "dist"}
    files = (file.relative_to(ROOT) for file in sorted(ROOT.rglob("*")) if file.is_file())
    return [file.as_posix() for file in files if not made.intersection(file.parts)]


def _copy(name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / name
    if re.fullmatch(r"src/tiny_llm_course/catalogue/\w+\.toml", name):
        write_whole(target, _without_mistakes(source.read_text(encoding="utf-8")).encode())
    elif name == "pyproject.toml":
        write_whole(target, _without_commands(source.read_text(encoding="utf-8")).encode())
    else:
        shutil.copy(source, target)


def _without_mistakes(catalogue: str) -> str:
    """Remove the mistakes from a catalogue, because the mistakes' edits show the solution. Keep the hints."""
    parts = re.split(r"(?m)^(?=\[)", catalogue)
    return "".join(part for part in parts if not part.startswith("[[tasks.mistakes]]"))


def _without_commands(project: str) -> str:
    return "".join(
        line
        for line in project.splitlines(keepends=True)
        if line.rstrip() not in {f'{name} = "tiny-llm {name}"' for name in NEED_SOLUTIONS}
    )


def _commit(folder: Path) -> None:
    """Make a first commit if git is installed, so that students can see their changes and run `update`, which
    needs a commit."""
    if shutil.which("git") is None:
        return
    git = Git(folder)
    git.run("-c", "init.defaultBranch=main", "init", "--quiet")
    git.run("add", "--all")
    git.run(*IDENTITY, "commit", "--quiet", "-m", "The course")

"""`tiny-llm update`: brings a newer course into a clone whose stubs are filled in."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from .files import write_whole
from .language import Lang, Messages
from .lessons import messages_in
from .problems import CommandError, reporting
from .splice import SpliceError, merge
from .terminal import show
from .unsolved import task_in_message
from .workspace import Workspace

__all__ = ["take_back_commit", "update"]

LEARNERS = "src/tiny_llm/"


def update(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="A git remote, URL or clone of the newer course. Default: origin."),
    ] = None,
    branch: Annotated[str, typer.Option(metavar="NAME", help="Its branch or tag.")] = "HEAD",
    lang: Lang = None,
) -> None:
    """Bring in a newer course: your functions are kept, new and changed stubs come in, undo takes it back."""
    with reporting():
        say = messages_in(lang)
        workspace = Workspace()
        git = _Git(workspace.root)
        git.check_ready()
        head, new = git.commit("HEAD"), git.fetch(source or "origin", branch)
        if git.contains(head, new):
            show(say("update_none"))
            return
        changes = _changes(workspace, git, head, new)
        if changes.refused:
            raise CommandError(say("update_refused", reasons=" ".join(changes.refused)), exit_code=1)
        copies = workspace.backups.write(changes.files, say("what_update", commit=new[:10]))
        for path in changes.executable:
            path.chmod(0o755)
        made = git.record(list(changes.files), new)
        write_whole(copies / "git.json", json.dumps({"before": head, "after": made}).encode())
        _show(changes, workspace, say)


def take_back_commit(root: Path, copies: Path) -> None:
    """After the files of an update were brought back: its commit, too, if nothing was committed since."""
    if not (copies / "git.json").exists():
        return
    commits = json.loads((copies / "git.json").read_text(encoding="utf-8"))
    git = _Git(root)
    if git.commit("HEAD") == commits["after"]:
        git.reset(commits["before"])


@dataclass
class _Changes:
    """What an update does."""

    files: dict[Path, bytes | None] = field(default_factory=dict)  # None: it is gone from the course
    signatures: list[tuple[Path, str, str]] = field(default_factory=list)  # file, old, new
    refused: list[str] = field(default_factory=list)  # why a file cannot be merged
    executable: list[Path] = field(default_factory=list)
    edited: list[Path] = field(default_factory=list)  # the course's own files that were changed here: replaced


def _changes(workspace: Workspace, git: _Git, head: str, new: str) -> _Changes:
    changes = _Changes()
    base = git.files(git.base(head, new))
    theirs = git.files(new)
    for name, blob in theirs.items():
        path = workspace.root / name
        content = git.content(blob)
        if name.startswith(LEARNERS) and path.suffix == ".py" and path.exists():
            _merge(path, content, changes)
        elif not path.exists() or path.read_bytes() != content:
            if path.exists() and name in base and path.read_bytes() != git.content(base[name]):
                changes.edited.append(path)
            changes.files[path] = content
            if git.is_executable(new, name):
                changes.executable.append(path)
    for name in base.keys() - theirs.keys():
        path = workspace.root / name
        if path.exists() and not name.startswith(LEARNERS):
            changes.files[path] = None
    return changes


def _merge(path: Path, stub: bytes, changes: _Changes) -> None:
    """A learner's file: the newer stub with what is solved."""
    before = path.read_bytes()
    if before == stub:
        return
    try:
        merged, signatures = merge(before.decode("utf-8"), stub.decode("utf-8"), _is_stub, os.path.relpath(path))
    except (SpliceError, UnicodeDecodeError) as error:
        changes.refused.append(f"{os.path.relpath(path)}: {error}" if isinstance(error, UnicodeError) else str(error))
        return
    changes.signatures += [(path, *pair) for pair in signatures]
    if merged.encode() != before:
        changes.files[path] = merged.encode()


def _is_stub(function: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and task_in_message(node.value) is not None
        for statement in ast.walk(function)
        if isinstance(statement, ast.Raise)
        for node in ast.walk(statement)
    )


def _show(changes: _Changes, workspace: Workspace, say: Messages) -> None:
    def name(path: Path) -> str:
        return path.relative_to(workspace.root).as_posix()

    show(say("update_done", count=len(changes.files)))
    for path in changes.files:
        if name(path).startswith(LEARNERS):
            show("  " + say("update_merged", file=name(path)))
    for path in changes.edited:
        show("  " + say("update_edited", file=name(path)), fg="yellow")
    for path, old, new in changes.signatures:
        show("  " + say("update_signature", file=name(path), old=old, new=new).strip("\n"), fg="yellow")


class _Git:
    """The clone's git. Every command that fails becomes a CommandError with what git said."""

    def __init__(self, root: Path):
        self._root = root

    def check_ready(self) -> None:
        if not (self._root / ".git").exists():
            raise CommandError(
                f"update needs a git clone; {self._root} is none. Clone the course, then copy src/tiny_llm"
            )
        if (Path(self._run("rev-parse", "--absolute-git-dir").decode().strip()) / "MERGE_HEAD").exists():
            raise CommandError("a merge is in progress; end it with git commit or git merge --abort", exit_code=1)

    def fetch(self, source: str, branch: str) -> str:
        self._run("fetch", "--quiet", source, branch)
        return self.commit("FETCH_HEAD")

    def commit(self, name: str) -> str:
        return self._run("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()

    def contains(self, head: str, other: str) -> bool:
        return self.base(head, other) == other

    def base(self, head: str, other: str) -> str:
        """The last commit that both have; without one, which a shallow clone may be, the clone's own."""
        run = subprocess.run(["git", "merge-base", head, other], cwd=self._root, capture_output=True, text=True)
        return run.stdout.strip() or head

    def files(self, commit: str) -> dict[str, str]:
        """Path -> blob."""
        entries = self._run("ls-tree", "-r", "-z", commit).decode().split("\0")
        rows = [entry.partition("\t") for entry in entries if entry]
        return {path: meta.split()[2] for meta, _, path in rows if meta.split()[1] == "blob"}

    def content(self, blob: str) -> bytes:
        return self._run("cat-file", "blob", blob)

    def is_executable(self, commit: str, path: str) -> bool:
        return self._run("ls-tree", commit, "--", path).startswith(b"100755")

    def reset(self, commit: str) -> None:
        """Move HEAD and index; files stay."""
        self._run("reset", "--quiet", "--mixed", commit)

    def record(self, files: list[Path], new: str) -> str:
        """A merge commit of these files, so that `git pull` has nothing to ask later. What else is staged stays so."""
        names = [path.relative_to(self._root).as_posix() for path in files]
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            self._run("read-tree", "HEAD", **index)
            if names:
                self._run("add", "--all", "--force", "--", *names, **index)
            tree = self._run("write-tree", **index).decode().strip()
        message = f"Update the course to {new[:10]}"
        identity = ["-c", "user.name=tiny-llm", "-c", "user.email=tiny-llm@localhost"]
        known = subprocess.run(["git", "config", "user.email"], cwd=self._root, capture_output=True).returncode == 0
        parents = ["-p", "HEAD", "-p", new]
        made = self._run(*([] if known else identity), "commit-tree", tree, *parents, "-m", message)
        self._run("update-ref", "-m", message, "HEAD", made.decode().strip())
        if names:
            self._run("reset", "--quiet", "--", *names)
        return made.decode().strip()

    def _run(self, *arguments: str, **environment: str) -> bytes:
        run = subprocess.run(["git", *arguments], cwd=self._root, capture_output=True, env=os.environ | environment)
        if run.returncode:
            said = " ".join(run.stderr.decode(errors="replace").split())
            raise CommandError(f"git {arguments[0]} failed: {said}", exit_code=1)
        return run.stdout

"""`tiny-llm update`: brings a newer course into a clone whose stubs are filled in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from .files import write_whole
from .git import Git
from .language import Lang, Messages, Phrase, phrase
from .problems import CommandError, reporting
from .regions import SUFFIXES, is_native, regions, with_regions
from .splice import SpliceError, merge
from .terminal import show
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
    with reporting(lang) as say:
        workspace = Workspace()
        git = Git(workspace.root)
        git.check_ready()
        head, new = git.commit("HEAD"), git.fetch(source or "origin", branch)
        if git.contains(head, new):
            show(say("update_none"))
            return
        changes = _changes(workspace, git, head, new)
        if changes.refused:
            raise CommandError("update_refused", reasons=changes.refused, exit_code=1)
        copies = workspace.backups.write(changes.files, say.in_all("what_update", commit=new[:10]))
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
    git = Git(root)
    if git.commit("HEAD") == commits["after"]:
        git.reset(commits["before"])


@dataclass
class _Changes:
    """What an update does."""

    files: dict[Path, bytes | None] = field(default_factory=dict)  # None: it is gone from the course
    signatures: list[tuple[Path, str, str]] = field(default_factory=list)  # file, old, new
    refused: list[Phrase] = field(default_factory=list)  # why a file cannot be merged
    executable: list[Path] = field(default_factory=list)
    edited: list[Path] = field(default_factory=list)  # the course's own files that were changed here: replaced


def _changes(workspace: Workspace, git: Git, head: str, new: str) -> _Changes:
    changes = _Changes()
    base = git.files(git.base(head, new))
    theirs = git.files(new)
    for name, entry in theirs.items():
        path = workspace.root / name
        content = git.content(entry)
        if name.startswith(LEARNERS) and path.suffix in SUFFIXES and path.exists():
            _merge(path, content, git.content(base[name]) if name in base else b"", changes)
        elif not path.exists() or path.read_bytes() != content:
            if path.exists() and name in base and path.read_bytes() != git.content(base[name]):
                changes.edited.append(path)
            changes.files[path] = content
            if entry.is_executable:
                changes.executable.append(path)
    for name in base.keys() - theirs.keys():
        path = workspace.root / name
        if path.exists() and not name.startswith(LEARNERS):
            changes.files[path] = None
    return changes


def _merge(path: Path, stub: bytes, old_stub: bytes, changes: _Changes) -> None:
    """A learner's file: the newer stub with what is solved."""
    before = path.read_bytes()
    if before == stub:
        return
    try:
        merged, signatures = merge(before.decode("utf-8"), stub.decode("utf-8"), os.path.relpath(path))
    except UnicodeDecodeError as error:
        changes.refused.append(phrase("not_utf8", file=os.path.relpath(path), reason=error))
        return
    except SpliceError as error:
        changes.refused.append(phrase("splice_unreadable", reason=error.__cause__ or error))
        return
    changes.signatures += [(path, *pair) for pair in signatures]
    if merged.encode() != before:
        changes.files[path] = merged.encode()
        if is_native(path) and _outside(before, path) != _outside(old_stub, path):
            changes.edited.append(path)


def _outside(source: bytes, path: Path) -> str:
    """What stands around the regions of C++ or Metal, which the newer stub replaces."""
    text = source.decode("utf-8")
    return with_regions(text, dict.fromkeys(regions(text, str(path)), ""), str(path))


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

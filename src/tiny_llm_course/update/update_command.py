"""`tiny-llm update`: merges a newer course into a clone that contains a learner's work."""

from __future__ import annotations

from itertools import dropwhile
from pathlib import Path
from typing import Annotated

import typer

from ..base.conflict import conflict_in_package
from ..base.reporting import reporting
from ..base.whole_files import content_of
from ..learner.git import Git
from ..learner.workspace import Workspace, changing
from ..tasks.syllabus import TaskId
from ..ui import CommandError, Lang, Messages, one_of, phrase, show, show_note
from .update_check import Trouble, solved_tasks, trouble
from .update_plan import UpdatePlan, plan_update
from .versions import CHANGELOG, read_versions

__all__ = ["update"]

CHECKED = ("src/", "tests/", "pyproject.toml")  # changes to other files cannot break anything
PACKAGES = "pdm.lock"
LAST = "src/tiny_llm_course/"  # written last, so that until then the old commands can take back an interrupted update


def update(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="A git remote, URL or clone of the newer course. Default: origin."),
    ] = None,
    branch: Annotated[str, typer.Option(metavar="NAME", help="Branch or tag of the source.")] = "HEAD",
    to: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help=f"A version in the source's {CHANGELOG}. Default: the newest commit."),
    ] = None,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="Update even if tasks that you solved fail the newer tests. These tasks are then open again.",
        ),
    ] = False,
    lang: Lang = None,
) -> None:
    """Update to a newer course: your code is kept; new and changed stubs are added. `undo` takes the update back."""
    with reporting(lang) as words:
        workspace = Workspace()
        git = Git(workspace.root)
        git.check_ready()
        if problem := conflict_in_package(workspace.root, workspace.package):
            raise problem
        source = source or "origin"
        head, newest = git.commit("HEAD"), git.fetch(source, branch)
        new = newest if to is None else _commit_of(to, head, newest, source, git)
        if git.contains(head, new):
            show(words("update_none") if to is None else words("update_has", version=to))
            return
        plan = plan_update(workspace, git, head, new)
        if plan.refused:
            raise CommandError("update_refused", reasons=plan.refused, exit_code=1)
        trouble = _tried(workspace, plan, words)
        if trouble and not reopen:
            has_new_packages = git.files(head).get(PACKAGES) != git.files(new).get(PACKAGES)
            raise _taken_back(trouble, plan, has_new_packages)
        opened = [task for task in plan.changed if workspace.progress.state(task)]
        copies = _write(plan, head, new, [*opened, *(trouble.tasks if trouble else [])], words)
        _show(plan, workspace, copies, opened, words)


def _commit_of(version: str, head: str, newest: str, source: str, git: Git) -> str:
    """Return the commit that the newest course lists for a version. If the clone's own list has the version, return
    HEAD, because if the clone and the course have no common history, git cannot tell that HEAD is newer."""
    if version in _versions(head, git):
        return head
    versions = _versions(newest, git)
    if not versions:
        raise CommandError("update_no_versions", source=source)
    if version not in versions:
        raise CommandError("wrong_value", option="--to", expected=one_of(versions), got=version)
    commit = versions[version]
    if not git.contains(newest, commit):
        raise CommandError("update_version_lost", version=version, commit=commit[:10], source=source, exit_code=1)
    return commit


def _versions(commit: str, git: Git) -> dict[str, str]:
    changelog = git.files(commit).get(CHANGELOG)
    return read_versions(git.content(changelog).decode()) if changelog else {}


def _tried(workspace: Workspace, plan: UpdatePlan, words: Messages) -> Trouble | None:
    names = [path.relative_to(workspace.root).as_posix() for path in plan.files]
    if not any(name.startswith(CHECKED) for name in names):
        return None
    if solved := [task for task in solved_tasks(workspace) if task not in plan.changed]:
        show_note(words("update_checking", count=len(solved)))
    return trouble(workspace, plan.files, solved, [*plan.changed, *plan.added])


def _taken_back(trouble: Trouble, plan: UpdatePlan, has_new_packages: bool) -> CommandError:
    """Print the output of the newer course's tests. Return the error that lists what the update would break."""
    if trouble.told:
        show(trouble.told.strip("\n") + "\n")
    reasons = [phrase("update_breaks_import", name=name, error=error) for name, error in trouble.imports.items()]
    if trouble.tasks:
        reasons.append(phrase("update_breaks_tasks", tasks=", ".join(map(str, trouble.tasks))))
    reasons += [phrase("update_breaks_signature", old=old, new=new) for _, old, new in plan.signatures]
    if has_new_packages:
        reasons.append(phrase("update_breaks_packages"))
    return CommandError("update_taken_back", reasons=reasons, exit_code=1)


def _write(plan: UpdatePlan, head: str, new: str, reopened: list[TaskId], words: Messages) -> Path:
    """Write all files and make a commit, or change nothing. Return the folder with copies of the files.

    Raises:
        CommandError: a file was changed since the update was planned.
    """
    with changing("update") as workspace:
        git = Git(workspace.root)
        changed = [path for path, content in plan.seen.items() if content_of(path) != content]
        if changed or git.commit("HEAD") != head:
            raise CommandError("update_meanwhile", exit_code=1)
        files = dict(sorted(plan.files.items(), key=lambda item: _is_last(item[0], workspace)))
        states: dict[TaskId, str | None] = dict.fromkeys(reopened)
        progress = {workspace.progress.file: workspace.progress.changed(states)} if reopened else {}
        reason = words.in_all("what_update", commit=new[:10])
        with workspace.backups.writing(files | progress | _old_code(plan, workspace), reason) as copies:
            for path in plan.executable:
                path.chmod(0o755)
            git.record([*files, *plan.unrecorded], new, copies)
        return copies


def _old_code(plan: UpdatePlan, workspace: Workspace) -> dict[Path, bytes]:
    """Return the files that keep the learner's code for tasks that the course has changed."""
    files: dict[Path, str] = {}
    for old in plan.old:
        comment = "#" if old.kept.suffix == ".py" else "//"
        head = f"{comment} {old.task}, in {old.file.relative_to(workspace.root).as_posix()}\n\n"
        files[old.kept] = (files[old.kept] + "\n\n" if old.kept in files else "") + head + old.code
    return {path: text.encode() for path, text in files.items()}


def _is_last(path: Path, workspace: Workspace) -> bool:
    return path.relative_to(workspace.root).as_posix().startswith(LAST)


def _show(plan: UpdatePlan, workspace: Workspace, copies: Path, opened: list[TaskId], words: Messages) -> None:
    def name(path: Path) -> str:
        return path.relative_to(workspace.root).as_posix()

    moved_from = {new: old for old, new in plan.moved}

    def copy(path: Path) -> str:
        return name(copies / "before" / name(moved_from.get(path, path)))

    show(words("update_done", count=len(plan.files)))
    _show_changed(plan, workspace, words)
    for again in [task for task in opened if task not in {old.task for old in plan.old}]:
        show("  " + words("update_test_again", task=again), fg="yellow")
    for path in plan.merged:
        show("  " + words("update_merged", file=name(path)))
    for old, new in plan.moved:
        show("  " + words("update_moved", old=name(old), new=name(new)))
    for task, old, new in plan.carried:
        show("  " + words("update_carried", task=task, old=name(old), new=name(new)))
    for path in plan.kept:
        show("  " + words("update_kept", file=name(path)))
    for path in plan.followed:
        show("  " + words("update_followed", file=name(path)))
    for path, course in plan.shared:
        show("  " + words("update_shared", file=name(path), course=name(course), copy=copy(path)), fg="yellow")
    for path in plan.dropped:
        show("  " + words("update_dropped", file=name(path), copy=copy(path)), fg="yellow")
    for path in plan.outdated:
        show("  " + words("update_outdated", file=name(path), copy=copy(path)), fg="yellow")
    for path in plan.edited:
        show("  " + words("update_edited", file=name(path), copy=copy(path)), fg="yellow")
    for path, lines in plan.replaced:
        place = f"{lines.first}" if lines.first == lines.last else f"{lines.first}-{lines.last}"
        show("  " + words("update_replaced", file=name(path), lines=place, copy=copy(path)), fg="yellow")
    for path, mine, theirs in plan.signatures:
        show("  " + words("update_signature", file=name(path), old=mine, new=theirs).strip("\n"), fg="yellow")


def _show_changed(plan: UpdatePlan, workspace: Workspace, words: Messages) -> None:
    """Show the tasks that the course has changed, each with the learner's code and the new stub."""
    for task in sorted({old.task for old in plan.old}):
        mine = [old for old in plan.old if old.task == task]
        files = ", ".join(dict.fromkeys(old.kept.relative_to(workspace.root).as_posix() for old in mine))
        show("\n" + words("update_changed", task=task, file=files), fg="yellow")
        for old in mine:
            _show_code(words("update_yours", file=old.file.relative_to(workspace.root).as_posix()), old.code)
        for path, code in {path: code for old in mine for path, code in old.new.items()}.items():
            _show_code(words("update_now", file=path.relative_to(workspace.root).as_posix()), code)
    if plan.old:
        show()


def _show_code(title: str, code: str) -> None:
    show(f"  {title}")
    for line in dropwhile(_is_import, code.splitlines()):
        show(f"    {line}".rstrip(), dim=True)


def _is_import(line: str) -> bool:
    return not line or line.startswith(("import ", "from "))

"""Git in the learner's clone: reads commits, and makes the commit of an update."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..base.conflict import abort_command
from ..base.whole_files import write_whole
from ..ui import CommandError

__all__ = ["IDENTITY", "Git", "GitFile", "take_back_commit"]

IDENTITY = ("-c", "user.name=tiny-llm", "-c", "user.email=tiny-llm@localhost")  # used if git knows no author
NOTE = "git.json"  # in the folder of an update's copies: HEAD before and after the update, and the files of its commit


@dataclass(frozen=True)
class GitFile:
    """A file in a commit."""

    blob: str
    is_executable: bool

    def holds(self, content: bytes) -> bool:
        """Tell whether the file has this content. Line ends may differ, since git may have checked the file out with
        CRLF."""
        return self.blob in (self._hash(content), self._hash(content.replace(b"\r\n", b"\n")))

    def _hash(self, content: bytes) -> str:
        kind = hashlib.sha256 if len(self.blob) == 64 else hashlib.sha1
        return kind(b"blob %d\0" % len(content) + content).hexdigest()


class Git:
    """Git in a clone. If a git command fails, the method that ran the command raises a CommandError with git's
    message."""

    def __init__(self, root: Path):
        self._root = root

    def check_ready(self) -> None:
        if not (self._root / ".git").exists():
            raise CommandError("git_no_clone", folder=self._root)
        if command := abort_command(self._root):
            raise CommandError("git_merging", command=command, exit_code=1)

    def fetch(self, source: str, branch: str) -> str:
        self.run("fetch", "--quiet", source, branch)
        return self.commit("FETCH_HEAD")

    def commit(self, name: str) -> str:
        return self.run("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()

    def contains(self, head: str, other: str) -> bool:
        return self.base(head, other) == other

    def base(self, head: str, other: str) -> str | None:
        """Return the last commit that both histories have. Return None if there is no such commit, for example in a
        shallow clone or in a copy with a history of its own."""
        run = subprocess.run(["git", "merge-base", head, other], cwd=self._root, capture_output=True, text=True)
        return run.stdout.strip() or None

    def files(self, commit: str) -> dict[str, GitFile]:
        """Return the files of a commit, keyed by path."""
        rows = [row.partition("\t") for row in self.run("ls-tree", "-r", "-z", commit).decode().split("\0") if row]
        entries = {path: meta.split() for meta, _, path in rows}
        return {path: GitFile(blob, mode == "100755") for path, (mode, kind, blob) in entries.items() if kind == "blob"}

    def content(self, entry: GitFile) -> bytes:
        return self.run("cat-file", "blob", entry.blob)

    def record(self, files: list[Path], new: str, copies: Path) -> None:
        """Make a merge commit of these files, so that a later `git pull` finds no conflict. Other staged changes
        stay staged.

        copies: the folder in which the commit is recorded before HEAD moves, so that `take_back_commit` can find the
        commit.
        """
        head = self.commit("HEAD")
        names = [path.relative_to(self._root).as_posix() for path in files]
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            self.run("read-tree", head, **index)
            if names:
                self.run("add", "--all", "--force", "--", *names, **index)
            tree = self.run("write-tree", **index).decode().strip()
        message = f"Update the course to {new[:10]}"
        known = subprocess.run(["git", "config", "user.email"], cwd=self._root, capture_output=True).returncode == 0
        made = (
            self.run(*(() if known else IDENTITY), "commit-tree", tree, "-p", head, "-p", new, "-m", message)
            .decode()
            .strip()
        )
        write_whole(copies / NOTE, json.dumps({"before": head, "after": made, "files": names}).encode())
        self.run("update-ref", "-m", message, "HEAD", made, head)
        if names:
            self.run("reset", "--quiet", "--", *names)

    def run(self, *arguments: str, **environment: str) -> bytes:
        """Run git, and return its output. If git fails, raise a CommandError with git's message."""
        run = subprocess.run(["git", *arguments], cwd=self._root, capture_output=True, env=os.environ | environment)
        if run.returncode:
            command = next(part for part in arguments if part != "-c" and "=" not in part)
            said = " ".join(run.stderr.decode(errors="replace").split())
            raise CommandError("git_failed", command=command, said=said, exit_code=1)
        return run.stdout


def take_back_commit(root: Path, copies: Path) -> None:
    """Take back the commit of an update whose files were restored, unless something has been committed since."""
    if not (copies / NOTE).exists():
        return
    commits = json.loads((copies / NOTE).read_text(encoding="utf-8"))
    git = Git(root)
    if git.commit("HEAD") == commits["after"]:
        if commits["files"]:  # resets only these files in the index, and leaves the working tree alone
            git.run("reset", "--quiet", commits["before"], "--", *commits["files"])
        git.run("update-ref", "HEAD", commits["before"], commits["after"])  # last, so that a failure can be retried

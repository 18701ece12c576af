"""Writes stubs to disk, but never over a learner's work."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ..base.whole_files import write_whole
from ..tasks.regions import code_files
from ..tasks.stubs import make_stub
from ..tasks.task_code import StubError

__all__ = ["check_stubs", "write_stubs"]


def write_stubs(reference: Path, out: Path, manifest: Path) -> list[str]:
    """Write the stubs of the files in `reference` to `out`. Return a line for each file that was changed.

    `manifest` has the hash of each stub as it was last written. A file with another hash is a learner's work.

    Raises:
        StubError: a file in `out` is a learner's work, or a file in `reference` is faulty. Nothing was written.
    """
    plan = _plan(reference, out, manifest)
    if plan.edited:
        raise StubError(
            "nothing was written, because these files were edited:\n"
            + "".join(f"  {out / path}\n" for path in plan.edited)
            + "To keep your work, do nothing. For a fresh stub, move your file away and run this again."
        )
    for path in plan.stale:
        write_whole(out / path, plan.stubs[path])
    for path in plan.orphaned:
        (out / path).unlink()
    if plan.manifest_is_stale:  # written last, so that each stub always matches the old or the new manifest
        write_whole(manifest, json.dumps(plan.hashes, indent=2, sort_keys=True).encode() + b"\n")
    return [f"wrote {out / path}" for path in plan.stale] + [f"deleted {out / path}" for path in plan.orphaned]


def check_stubs(reference: Path, out: Path, manifest: Path) -> list[str]:
    """Return a line for each file that `write_stubs` would change. Write nothing.

    Raises:
        StubError: a file in `reference` is faulty.
    """
    plan = _plan(reference, out, manifest)
    problems = [f"edited: {out / path}" for path in plan.edited]
    problems += [f"{'stale' if (out / path).exists() else 'missing'}: {out / path}" for path in plan.stale]
    problems += [f"left over, its reference is gone: {out / path}" for path in plan.orphaned]
    return problems + [f"stale: {manifest}"] * plan.manifest_is_stale


@dataclass(frozen=True)
class _Plan:
    """The changes to make. Paths are relative, with forward slashes."""

    stubs: dict[str, bytes]
    hashes: dict[str, str]
    edited: list[str]
    stale: list[str]  # outdated or missing files
    orphaned: list[str]
    manifest_is_stale: bool


def _plan(reference: Path, out: Path, manifest: Path) -> _Plan:
    stubs = {path.relative_to(reference).as_posix(): _stub(path) for path in code_files(reference)}
    if not stubs:
        raise StubError(f"{reference} holds no code")
    new, old = {path: _hash(stub) for path, stub in stubs.items()}, _read_manifest(manifest)
    hashes = {path: _hash((out / path).read_bytes()) for path in sorted({*new, *old}) if (out / path).exists()}
    edited = [path for path in hashes if hashes[path] not in (new.get(path), old.get(path))]
    return _Plan(
        stubs,
        new,
        edited,
        stale=[path for path in new if hashes.get(path) != new[path] and path not in edited],
        orphaned=[path for path in hashes if path not in new and path not in edited],
        manifest_is_stale=new != old,
    )


def _stub(path: Path) -> bytes:
    try:
        source = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StubError(f"{path} is not UTF-8: {error}") from error
    return make_stub(source, filename=str(path)).encode()


def _read_manifest(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_bytes())) if path.exists() else {}
    except ValueError as error:
        raise StubError(f"{path} is damaged; take it from git again ({error})") from error


def _hash(content: bytes) -> str:
    """Return the hash of a file. Line ends do not change the hash, because git may check the file out with CRLF."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()

"""The packages that `--impl` names: the learner's and the reference's."""

from __future__ import annotations

from importlib.util import find_spec

from ..ui import CommandError, one_of

__all__ = ["DEFAULT_IMPL", "PACKAGES", "REFERENCE", "package_of"]

REFERENCE = "tiny_llm_ref"
PACKAGES = {"ref": REFERENCE, "mine": "tiny_llm"}
if find_spec(REFERENCE) is None:  # an instructor left the reference out
    del PACKAGES["ref"]
DEFAULT_IMPL = next(iter(PACKAGES))


def package_of(impl: str) -> str:
    """Return the package that --impl names.

    Raises:
        CommandError: --impl names no package.
    """
    if impl not in PACKAGES:
        raise CommandError("wrong_value", option="--impl", expected=one_of(PACKAGES), got=impl)
    return PACKAGES[impl]

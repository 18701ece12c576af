"""Sets and returns the number of threads on which kernels run."""

from __future__ import annotations

from importlib import import_module

from ..ui import CommandError, phrase

__all__ = ["MOST_THREADS", "check_threads", "number_of_threads", "set_threads"]

MOST_THREADS = 256


def check_threads(count: int) -> None:
    """Raise a CommandError if kernels cannot run on this number of threads."""
    if not 1 <= count <= MOST_THREADS:
        raise CommandError(
            "wrong_value", option="--threads", expected=phrase("from_to", first=1, last=MOST_THREADS), got=count
        )


def set_threads(count: int) -> None:
    """Set the number of threads on which kernels run. Raise a CommandError if no kernels are built."""
    try:
        import_module("tiny_llm_native.extension").set_threads(count)
    except RuntimeError as error:
        raise CommandError("threads_failed", reason=error, exit_code=1) from None


def number_of_threads() -> int:
    """Return the number of threads on which kernels run.

    Raises:
        CommandError: no kernels are built.
    """
    try:
        return int(import_module("tiny_llm_native.extension").threads())
    except RuntimeError as error:
        raise CommandError("no_kernels", reason=error, exit_code=1) from None

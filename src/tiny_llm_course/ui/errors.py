"""Errors of commands, and notes on stderr, in the language of the person who ran the command."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from .language import Messages, Phrase, phrase
from .terminal import show

__all__ = ["CommandError", "one_of", "os_reason", "show_note"]


_REASONS = {  # for other errors, the system's own text is shown
    errno.ENOENT: phrase("os_absent"),
    errno.EACCES: phrase("os_denied"),
    errno.EPERM: phrase("os_denied"),
    errno.EISDIR: phrase("os_folder"),
    errno.ENOTDIR: phrase("os_no_folder"),
    errno.EEXIST: phrase("os_exists"),
    errno.ENOSPC: phrase("os_full"),
    errno.EDQUOT: phrase("os_full"),
    errno.EFBIG: phrase("os_too_large"),
    errno.EROFS: phrase("os_read_only"),
    errno.EADDRINUSE: phrase("os_port_used"),
    errno.EADDRNOTAVAIL: phrase("os_address"),
    socket.EAI_NONAME: phrase("os_host"),
}


class CommandError(Exception):
    """A problem that the user can solve, in one line: what is wrong, what was expected, and what to do.

    key: a key of errors.toml. values: the values of the text's placeholders; a Phrase appears in the text's language.
    exit_code: 2 if the call is wrong, 1 for any other problem.
    """

    def __init__(self, key: str, /, exit_code: int = 2, **values: object):
        super().__init__(key, values)
        self.key, self.exit_code, self.values = key, exit_code, values

    def __str__(self) -> str:
        """Return the text in the language of the command that runs."""
        return " ".join(Messages()(self.key, **self.values).split())


def show_note(text: str = "", style: str = "dim") -> None:
    """Print a note to stderr, so that stdout contains only the command's result. style: a key of COLOURS."""
    show(text, err=True, fg=style)


def one_of(names: Iterable[object]) -> Phrase:
    """Return a phrase that says that one of these names is expected."""
    return phrase("one_of", names=", ".join(map(str, names)))


def os_reason(error: OSError) -> Phrase | str:
    """Return the reason for a system error: a phrase in the user's language, or the system's own text."""
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)

"""The `tiny-llm` command."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import typer

from .base.reporting import reporting
from .commands import app
from .learner.workspace import settle
from .ui import Messages, called, show_note

__all__ = ["app", "main"]


def main() -> None:
    warnings.showwarning = _show_warning
    with suppress(typer.Exit), reporting():
        settle()
    app(prog_name=called())


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Show a UserWarning, the category of the course's own warnings, in one line. Show no other warning."""
    if category is UserWarning:
        show_note(Messages()("note", text=message))


if __name__ == "__main__":
    main()

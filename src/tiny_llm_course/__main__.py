"""The `tiny-llm` command."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import typer

from .commands import app
from .language import Messages
from .problems import reporting, say
from .terminal import called
from .workspace import settle

__all__ = ["app", "main"]


def main() -> None:
    warnings.showwarning = _show_warning
    with suppress(typer.Exit), reporting():
        settle()
    app(prog_name=called())


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """What the course's packages warn of, in a line; others' warnings are for others."""
    if category is UserWarning:
        say(Messages()("note", text=message))


if __name__ == "__main__":
    main()

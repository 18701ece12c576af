"""The `tiny-llm` command."""

from __future__ import annotations

import warnings
from typing import Any

from .commands import app
from .language import Messages
from .problems import say
from .terminal import called

__all__ = ["app", "main"]


def main() -> None:
    warnings.showwarning = _show_warning
    app(prog_name=called())


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """What the course's packages warn of, in a line; others' warnings are for others."""
    if category is UserWarning:
        say(Messages()("note", text=message))


if __name__ == "__main__":
    main()

"""The folder for files that commands write when you name no place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["OUT", "Out"]

OUT = Path("out")  # of the current folder; git ignores it
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Where files are written. The folder is made if need be.")]

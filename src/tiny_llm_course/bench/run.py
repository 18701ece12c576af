"""One run of `bench`: each figure is shown and written as soon as it is measured, so no figure is lost if the run is
stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from ..base.machine import about
from ..base.whole_files import write_whole
from ..native.arithmetic import chosen_line
from ..native.compiling import compile_for
from ..native.kernel_files import kernels_of
from ..native.threads import number_of_threads
from ..ui import Messages, StatusLine, show, show_note, wrapped
from .gpu import measure_gpu, table
from .kernel_cases import CASES
from .limits import OVER, is_over
from .machine_speeds import limit_name
from .measuring import MODEL, Events, Row, measure
from .quiet import AGAIN, Quiet, doubt_text
from .tables import Tables, show_doubts

__all__ = ["NAMES", "BenchRun"]

NAMES = [*dict.fromkeys(name for name, _ in CASES), MODEL]  # everything that can be measured
LAYERS = ("quantized_matvec", "rms_norm", "rope", "swiglu", "quantized_matmul", "attention", "packed", "block")
FILES = {"quantized_matvec": ("packed",), "quantized_matmul": ("packed",), MODEL: LAYERS}  # further files for each name


class BenchRun:
    """A run of `bench`: the package, the names of the parts to measure, and the figures so far.

    options: the command's options, without `--only`. wanted: some of NAMES. save: the file for the figures, or None.
    """

    def __init__(self, package: str, wanted: Sequence[str], options: str, save: Path | None, words: Messages):
        self._package, self._wanted, self._options, self._save, self._words = package, wanted, options, save, words
        self._status = StatusLine()
        self._now = ""  # the name that is being measured
        self._has_told = False  # whether the user has been told that the machine is busy
        self._found: dict[str, Any] = {"is_complete": False, "kernels": [], MODEL: []}

    def on_processor(self, is_small: bool) -> None:
        """Measure kernels in C++."""
        threads = number_of_threads()
        quiet, tables = Quiet(threads, self._tell_doubt, 0 if is_small else AGAIN), Tables(self._words)
        self._compile()

        def print_tables(events: Events) -> None:
            try:
                for name, value in events:
                    tables.show(name, value)
                tables.finish()
            finally:
                self._status.clear()
                show_doubts(self._doubts(), quiet.most, self._words)

        self._measure(measure(self._package, is_small, self._wanted, self._step, quiet), print_tables, "numpy")

    def on_gpu(self, is_small: bool) -> None:
        """Measure kernels in Metal, for a table in Markdown. One processor is needed, to wait for the GPU."""
        events = measure_gpu(self._package, is_small, self._wanted, self._step, Quiet(1, self._tell_doubt))

        def print_lines(events: Events) -> None:
            for line in table(events, self._found):
                self._status.clear()
                show(line)

        self._measure(events, print_lines, "mlx-lm")

    def _measure(self, events: Events, consume: Callable[[Events], None], beside: str) -> None:
        """Consume the events, keep the figures, and say whether the figures are complete. beside: the package whose
        version is saved in addition to MLX's."""
        self._found = about(f"tiny-llm bench {self._arguments(self._wanted)}", "mlx", beside) | self._found
        try:
            consume(self._kept(events))
            self._found["is_complete"] = True
        except KeyboardInterrupt:
            self._status.clear()
            left = self._wanted[self._wanted.index(self._now) :] if self._now else self._wanted
            count = sum(len(self._found[name]) for name in ("kernels", MODEL))
            show_note(
                "\n" + self._words("bench_stopped", count=count, command=f"./course bench {self._arguments(left)}")
            )
            raise typer.Exit(130) from None
        finally:
            self._status.clear()
            if self._save is not None:
                self._write(self._save)
                show_note(
                    self._words("bench_wrote" if self._found["is_complete"] else "bench_wrote_part", file=self._save)
                )

    def _kept(self, events: Events) -> Events:
        """Yield the same events. Before yielding an event, keep it and write the file."""
        for name, value in events:
            if name in ("kernels", MODEL):
                self._found[name].append(value)
            else:
                self._found[name] = value
            if self._save is not None:
                self._write(self._save)
            self._status.clear()
            yield name, value

    def _write(self, file: Path) -> None:
        write_whole(file, (json.dumps(self._found, indent=1) + "\n").encode())

    def _step(self, name: str, what: str) -> None:
        """Show what is measured next. name: one of NAMES, or "" for a limit. what: the rung, the stage or the limit."""
        self._now = name or self._now
        if not name:
            self._status.show(self._words("roofline_status", what=limit_name(what, self._words)))
            return
        numbers = {"number": self._wanted.index(name) + 1, "count": len(self._wanted)}
        self._status.show(self._words("bench_status", what=f"{name} {what}", **numbers))

    def _tell_doubt(self, doubt: str, others: float) -> None:
        """Show the reason why a figure is measured again. Without a terminal, show only the first such reason."""
        text = doubt_text(f"again_{doubt}", others, self._words)
        self._status.show(text)
        if not self._has_told and not self._status.can_show:
            show_note(text)
        self._has_told = True

    def _doubts(self) -> list[str]:
        rows: list[Row] = [*self._found["kernels"], *self._found[MODEL]]
        doubts = [self._found.get("limits_doubt"), *(row.get("doubt") for row in rows)]
        doubts += [OVER for row in rows if is_over(row.get("limit"))]  # other programs alone do not cause an excess
        return [doubt for doubt in dict.fromkeys(doubts) if doubt]

    def _arguments(self, names: Sequence[str]) -> str:
        """Return the arguments with which `bench` measures the parts that have these names."""
        chosen = "" if list(names) == NAMES else "".join(f" --only {name}" for name in names)
        return self._options + chosen

    def _compile(self) -> None:
        """Compile the kernels that will be measured, so that no first run waits for the compiler."""
        needed = {"roofline", *self._wanted, *(file for name in self._wanted for file in FILES.get(name, ()))}
        package = Path(import_module(self._package).__file__ or "").parent
        names = [file.stem for file in kernels_of(package).written if file.stem in needed]
        compile_for(self._package, names, self._words)
        if "packed" in names:
            show_note(wrapped(chosen_line(self._words)))

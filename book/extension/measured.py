"""Tables of measurements, read from benches/results, so that a new measurement changes the book's tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from tiny_llm_course.bench.tables import rung_name, speed
from tiny_llm_course.ui.language import Messages

from .course import CourseDirective, generated, inline
from .measured_week_3 import TABLES

__all__ = ["setup"]

RESULTS = Path(__file__).resolve().parents[2] / "benches" / "results"


class Bench(CourseDirective):
    """```{bench} NAME``` : a kernel's ladder, a table that a method of this class makes, or a table of week 3."""

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        names = ("ahead", "arithmetic", "compile", "llama", "model", "peers", "profile", "story")
        tables = {each: getattr(self, each) for each in names}
        file, rows = self.of_week_3(*TABLES[name]) if name in TABLES else tables.get(name, self.kernel)()
        if not rows[1:]:
            raise self.error(f"benches/results/{file.name} has no {name!r}")
        found = self.parse_text_to_nodes("\n".join(_line(row, i) for i, row in enumerate(rows)))
        about = self.word("measured", **{key: self.read(file)[key] for key in ("machine", "command")})
        note = nodes.paragraph("", "", *inline(about), classes=["measured"])
        return [generated(node) for node in [*found, note]]

    def read(self, file: Path) -> dict[str, Any]:
        self.env.note_dependency(str(file))
        if not file.is_file():
            raise self.error(f"there is no benches/results/{file.name}: measure it first")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def of_week_3(self, file: str, rows: Callable[..., list[list[str]]]) -> tuple[Path, list[list[str]]]:
        path = RESULTS / f"{file}.json"
        return path, rows(self.read(path), self.word)

    def kernel(self) -> tuple[Path, list[list[str]]]:
        file, words = RESULTS / "ladder.json", Messages(self.language)
        rows = [row for row in self.read(file)["kernels"] if row["kernel"] == self.arguments[0]]
        found = [[self.word("rung"), self.word("of_limit"), self.word("time"), self.word("against_fallback")]]
        sizes, fallback = "", 1.0
        for row in rows:
            if row["rung"] == "fallback":
                sizes, fallback = row["sizes"], row["seconds"]
                found.append([f"*{sizes}*", "", "", ""])
            seconds = row["seconds"]
            cells = [_share(row["limit"]), f"{seconds * 1e6:,.0f} µs", f"{fallback / seconds:.1f} x"]
            found.append([rung_name(row["rung"], words), *cells])
        return file, found

    def model(self) -> tuple[Path, list[list[str]]]:
        file, words = RESULTS / "ladder.json", Messages(self.language)
        passes = ("prefill", "decode")
        found = [["", *(cell for of in passes for cell in (words(f"bench_{of}"), self.word("of_limit")))]]
        for row in self.read(file)["model"]:
            cells = (cell for of in passes for cell in (speed(row[of]), _share(row[f"{of}_limit"])))
            found.append([rung_name(row["stage"], words), *cells])
        return file, found

    def peers(self) -> tuple[Path, list[list[str]]]:
        """Return the medians of all rounds: the speeds of each peer and of the course, and their ratio."""
        file = RESULTS / "peers.json"
        found = self.read(file)
        rows = [
            [self.word("peer"), self.word("pass"), self.word("peer_speed"), self.word("our_speed"), self.word("ratio")]
        ]
        for peer, ratios in found["ratios"].items():
            for what, ratio in ratios.items():
                speeds = [
                    median(each[of][name] for each in found["rounds"] if of in each)
                    for of, name in ((peer, what), ("ours", what.replace(" 16", " 128")))
                ]
                kind, length = what.split()
                rows.append([peer, self.word(kind, length=length), *map(speed, speeds), f"{ratio:.1f} x"])
        return file, rows

    def llama(self) -> tuple[Path, list[list[str]]]:
        """Return the course's best speeds with exact and with fast arithmetic, on this processor and with AVX2 only, as
        shares of the machine's limits and as ratios to llama.cpp's speeds."""
        columns = ("exact_speed", "of_limit", "against_llama", "fast_speed", "of_limit", "against_llama")
        rows = [[self.word("pass"), *map(self.word, columns)]]
        for march in ("", "x86-64-v3"):
            runs = [self.read(_peers(fast, march)) for fast in ("", "fast")]
            for what in runs[0]["ratios"]["llama.cpp"]:
                kind, length = what.split()
                row = [self.word(kind, length=length) + self.word("only_avx2") * bool(march)]
                for run in runs:
                    best = max(each["ours"][what] for each in run["rounds"])
                    row += [speed(best), _share(run["shares"]["ours"][what])]
                    row.append(f"{run['ratios']['llama.cpp'][what]:.2f} x")
                rows.append(row)
            rows += [] if march else [self.requests()]
        return _peers("fast", ""), rows

    def requests(self, count: int = 16) -> list[str]:
        """Return a row of the table `llama`: the decoding speeds of many requests."""
        row = [self.word("decode_requests", count=count)]
        for name in ("serving", "serving_fast"):
            rows = self.read(RESULTS / f"{name}.json")["rows"]
            found = next(each for each in rows if "ratio" in each and each["requests"] == count)
            row += [speed(found["decode"]), "", f"{found['ratio']:.2f} x"]
        return row

    def profile(self) -> tuple[Path, list[list[str]]]:
        file = RESULTS / "one_token.json"
        parts = self.read(file)["milliseconds"]
        whole = parts["whole step"]
        rows = [[self.word("part"), self.word("milliseconds"), self.word("share")]]
        for name, milliseconds in parts.items():
            rows.append([self.word(name), f"{milliseconds:.2f}", f"{100 * milliseconds / whole:.0f} %"])
        return file, rows

    def story(self) -> tuple[Path, list[list[str]]]:
        file = RESULTS / "story.json"
        rows = [["", self.word("first_token"), "tok/s"]]
        for row in self.read(file)["rows"]:
            rows.append([f"`{row['command']}`", f"{1e3 * row['first']:.0f} ms", f"{row['speed']:,.0f}"])
        return file, rows

    def ahead(self) -> tuple[Path, list[list[str]]]:
        """Return the times per token of both loops, and of Python alone."""
        file = RESULTS / "ahead.json"
        rows = [[self.word("time_per_token"), "`generate`", "`generate_ahead`", self.word("building")]]
        for row in self.read(file)["loops"]:
            times = [f"{1e3 * row[of]:.2f} ms" for of in ("generate", "generate_ahead", "python")]
            rows.append([self.word(row["model"]), *times])
        return file, rows

    def arithmetic(self) -> tuple[Path, list[list[str]]]:
        file = RESULTS / "arithmetic.json"
        columns = ("number_type", "error_few", "error_many", "perplexity_en", "perplexity_ja", "right_en", "right_ja")
        rows = [[self.word(column) for column in columns]]
        for name, row in self.read(file)["arithmetic"].items():
            errors = [_small(row["error"][rows_of_x]) for rows_of_x in ("few", "many")]
            perplexities = [f"{value:.3f}" for value in row["perplexity"].values()]
            rows.append([name, *errors, *perplexities, *(f"{100 * value:.1f} %" for value in row["right"].values())])
        return file, rows

    def compile(self) -> tuple[Path, list[list[str]]]:
        file = RESULTS / "ahead.json"
        rows = [[self.word("time_per_call"), self.word("uncompiled"), "`mx.compile`", self.word("first_call")]]
        for row in self.read(file)["functions"]:
            times = [f"{1e6 * row[of]:,.0f} µs" for of in ("plain", "compiled")]
            rows.append([self.word(row["function"]), *times, f"{row['first']:.1f} s"])
        return file, rows


def _peers(*parts: str) -> Path:
    return RESULTS / f"{'_'.join(('peers', *filter(None, parts)))}.json"


def _share(limit: float | None) -> str:
    return "" if limit is None else f"{100 * limit:.0f} %"


def _small(error: float) -> str:
    return f"{100 * error:.2g} %" if error > 1e-5 else "< 0.001 %"


def _line(cells: list[str], number: int) -> str:
    """Return a line of a Markdown table, with numbers aligned right."""
    cells = [
        re.sub(r"^([\d.,]+) (\S+)$", "\\1\N{NO-BREAK SPACE}\\2", cell) for cell in cells
    ]  # a number stays with its unit
    line = f"| {' | '.join(cells)} |"
    return line if number else line + "\n|---|" + "---:|" * (len(cells) - 1)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("bench", Bench)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

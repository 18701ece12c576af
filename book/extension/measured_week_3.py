"""Tables of week 3: the speed of an engine that serves many requests, and the gain from each of its parts."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, TypeAlias

from tiny_llm_course.bench.tables import speed

__all__ = ["TABLES"]

Word: TypeAlias = Callable[..., str]
Rows: TypeAlias = list[list[str]]
CASE = ("drafter", "text", "temperature", "num_drafts", "adapts")
HOW = (" in pages", ", padded to the longest")  # how the keys and values of a request are kept


def serving(found: dict[str, Any], word: Word) -> Rows:
    columns = ("model", "requests", "engine_speed", "without_sampling", "llama_speed", "ratio", "overhead")
    rows = [[word(column) for column in columns]]
    for row in found["rows"]:
        peer = [speed(row["llama.cpp"]["decode"]), f"{row['ratio']:.2f} x"] if "ratio" in row else ["", ""]
        speeds = [speed(row["decode"]), speed(row["decode without sampling"])]
        rows.append([row["shape"], str(row["requests"]), *speeds, *peer, f"{100 * row['overhead']:.1f} %"])
    return rows


def batches(found: dict[str, Any], word: Word) -> Rows:
    rows = [[word(column) for column in ("peer", "peer_speed", "engine_speed", "ratio")]]
    peer = found["mlx-lm"]
    return [*rows, ["mlx-lm", speed(peer["all"]), speed(peer["ours"]), f"{peer['ours'] / peer['all']:,.0f} x"]]


def memory(found: dict[str, Any], word: Word) -> Rows:
    rows = [[word(column) for column in ("model", "token_bytes", "pages_waste", "padded_waste")]]
    for row in found["memory"]:
        waste = [row[f"waste of a request{how}, tokens"] * row["bytes of a token"] for how in HOW]
        sizes = [_size(each) for each in (row["bytes of a token"], *waste)]
        rows.append([row["shape"], *sizes])
    return rows


def gaps(found: dict[str, Any], word: Word) -> Rows:
    rows = [[word(column) for column in ("budget", "steps", "gap_before", "longest_gap", "first_token")]]
    for row in found["rows"]:
        times = [_milliseconds(row[name]) for name in ("gap_before", "longest_gap", "first_token")]
        rows.append([str(row["budget"] or word("no_budget")), str(row["steps"]), *times])
    return rows


def first_tokens(found: dict[str, Any], word: Word) -> Rows:
    rows = [[word(column) for column in ("arrival", "tree", "prompt_tokens", "steps", "first_one", "later_ones")]]
    for row in found["rows"]:
        first, *others = row["first_tokens"]
        times = [_milliseconds(seconds) for seconds in (first, median(others))]
        rows.append([word(row["arrival"]), word(row["cache"]), f"{row['computed']:,}", str(row["steps"]), *times])
    return rows


def chances(found: dict[str, Any], word: Word) -> Rows:
    columns = ("requests", "chance", "accepted", "tokens_per_step", "without_guesses", "with_guesses", "ratio")
    rows = [[word(column) for column in columns]]
    for row in found["chances"]:
        what = [str(row["requests"]), f"{100 * row['chance']:.0f} %", f"{100 * row['accepted']:.0f} %"]
        speeds = [speed(row["without"]), speed(row["with"]), f"{row['speed_up']:.2f} x"]
        rows.append([*what, f"{row['tokens_per_step']:.2f}", *speeds])
    return rows


def drafters(found: dict[str, Any], word: Word) -> Rows:
    """Return a row for each drafter and text, with a column of speed-ups for each number of requests."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in found["pairs"]:
        cases.setdefault(" ".join(str(row[key]) for key in CASE), []).append(row)
    counts = sorted({row["requests"] for row in found["pairs"]})
    columns = ("drafter", "text", "temperature", "guesses", "accepted", "tokens_per_step")
    rows = [[*(word(column) for column in columns), *(word("with_requests", count=count) for count in counts)]]
    for case in cases.values():
        first = case[0]
        guesses = word("up_to" if first["adapts"] else "always", count=first["num_drafts"])
        what = [word(first["drafter"]), word(first["text"]), f"{first['temperature']:g}", guesses]
        seen = [f"{100 * first['accepted']:.0f} %", f"{first['tokens_per_step']:.2f}"]
        rows.append([*what, *seen, *(f"{row['speed_up']:.2f} x" for row in case)])
    return rows


def servers(found: dict[str, Any], word: Word) -> Rows:
    columns = ("weights", "clients", "server", "output_speed", "first_tokens", "between_tokens")
    rows = [[word(column) for column in columns]]
    for row in found["rows"]:
        times = [_percentiles(row[name], ("p50", "p95")) for name in ("first token", "between")]
        weights = "bfloat16" if row["weights"] == "bfloat16" else word("four_bits")
        rows.append([weights, str(row["clients"]), row["server"], speed(row["output tokens a second"]), *times])
    return rows


def load(found: dict[str, Any], word: Word) -> Rows:
    rows = [[word(column) for column in ("requests", "left", "output_speed", "three_first", "three_between")]]
    row = found["load"]
    times = [_percentiles(row[name], ("p50", "p95", "p99")) for name in ("first token", "between")]
    return [*rows, [str(row["sent"]), str(row["hung up"]), speed(row["output tokens a second"]), *times]]


def _percentiles(found: dict[str, float], names: tuple[str, ...]) -> str:
    return ", ".join(_milliseconds(found[name] / 1e3) for name in names)


def _milliseconds(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.{0 if value >= 100 else 1}f} ms"


def _size(count: float) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


TABLES = {  # keyed by name: the file in benches/results, and the function that makes its rows
    "serving": ("serving", serving),
    "batches": ("serving", batches),
    "memory": ("serving", memory),
    "gaps": ("chunked_prefill_qwen3-0.6b", gaps),
    "first-tokens": ("prefix_cache_qwen3-0.6b", first_tokens),
    "chances": ("speculative", chances),
    "drafters": ("speculative", drafters),
    "servers": ("server", servers),
    "server-load": ("server", load),
}

"""Compares two servers, `tiny-llm serve` and mlx-lm's server, with clients that read streams over HTTP.

python benches/server.py             into results/server.json
python benches/server.py --smoke     a few tokens; nothing is written

Both servers load the bundled model from the same folder: in bfloat16, which is mlx-lm's fastest format on a CPU, and
with 4 bits per weight, as `mlx_lm convert` writes them. The first model runs with each server's default settings: then
`tiny-llm serve` computes in float32 with tuned layers, and mlx-lm computes in bfloat16.

Each prompt has 64 tokens of held-out stories, and no two prompts are alike. Each request asks for 32 tokens, chosen
greedily. A client sends its next request when its previous request has finished. Both servers answer some requests
before the measurement. Then they take turns on the same requests, so that other programs slow down both servers alike.
The figures are those of all rounds together. mlx-lm runs with its default settings, so it computes up to 8 prompts and
32 outputs at once. With 4 bits per weight, mlx-lm is slow on a CPU, so it runs only one round, with one request per
client, but at least four requests.

Each client is a thread of this process. It measures the time from its request to the first text that arrives, and the
time from each text to the next. A client that cannot connect tries again. The time to the first text includes these
retries, and the results include their number.

Then `tiny-llm serve` alone answers 500 requests of random lengths from 64 clients. In one request of five, the client
disconnects in the middle of the stream. The times and token counts are those of the other requests.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from tiny_llm_course.base.machine import about
from tiny_llm_models import bundled
from tiny_llm_models.storyteller import lexicon, tell
from tiny_llm_ref.models import load
from tiny_llm_ref.serving.latency import percentile

RESULTS = Path(__file__).parent / "results" / "server.json"
OURS, PEER = "tiny-llm", "mlx-lm"
THREADS, PROMPT, NEW, ROUNDS, RETRIES = 2, 64, 32, 3, 200
REQUESTS = {1: 8, 4: 24, 16: 48}  # per round, keyed by the number of clients
LOAD = {"requests": 500, "clients": 64, "leaving": 5, "prompt": (8, 256), "new": (8, 96)}  # ranges: tokens
SMALL_LOAD = LOAD | {"requests": 10, "clients": 4, "prompt": (8, 12), "new": (8, 12)}
REMAINING = {
    "aborted": 'requests_total{finish_reason="abort"}',
    "still running": 'requests_now{status="running"}',
    "pages in use": 'pages{status="used"}',
}
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "TINY_LLM_THREADS": str(THREADS)}
JSON = {"Content-Type": "application/json"}
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@dataclass(frozen=True)
class Weights:
    """A format of the weights. convert: the options of `mlx_lm convert`; without options, the model is not converted.
    options: the options of `tiny-llm serve`. is_slow: whether mlx-lm is slow with these weights."""

    name: str
    convert: tuple[str, ...]
    options: tuple[str, ...]
    is_slow: bool


WEIGHTS = (
    Weights("bfloat16", (), (), False),
    Weights("4 bits", ("-q", "--q-bits", "4", "--q-group-size", "64"), ("--layers", "tuned"), True),
)


@dataclass(frozen=True)
class Asked:
    """A request for `new` tokens. leaves_after: how many texts the client reads before it disconnects; None: it reads
    all texts. is_exact: whether the server continues after an end of text until the output has `new` tokens; only
    `tiny-llm serve` has this option."""

    prompt: str
    new: int
    leaves_after: int | None = None
    is_exact: bool = False


@dataclass(frozen=True)
class Seen:
    """A client's measurements. first: seconds to the first text. between: seconds from each text to the next. prompt,
    output: token counts. retries: how often the client could not connect."""

    first: float
    between: list[float]
    text: str
    prompt: int
    output: int
    retries: int


@dataclass(frozen=True)
class Server:
    """A running server. model: the model's name in requests."""

    name: str
    url: str
    model: str

    def ask(self, asked: Asked) -> Seen | None:
        """Stream one answer, and return the client's measurements. Return None if the client disconnects."""
        body = {"model": self.model, "prompt": asked.prompt, "max_tokens": asked.new, "temperature": 0}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= {"ignore_eos": True} if asked.is_exact else {}
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), JSON)
        start, events = time.perf_counter(), []
        for retries in range(RETRIES):
            try:
                with OPEN(request, timeout=600) as response:
                    for line in response:
                        if line.startswith(b"data: "):
                            events.append((time.perf_counter(), line[6:]))
                            if len(events) == asked.leaves_after:
                                return None
                return seen(start, events, retries)
            except ConnectionError:
                if events:
                    raise
                time.sleep(0.02)
        raise RuntimeError(f"{self.name}: expected a connection, got none in {RETRIES} tries")

    def ask_all(self, asked: Sequence[Asked], clients: int) -> list[Seen | None]:
        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(self.ask, asked))

    def read(self, path: str) -> str:
        with OPEN(self.url + path, timeout=10) as response:
            return str(response.read().decode())

    def is_ready(self) -> bool:
        with suppress(OSError):
            return "ok" in self.read("/health")
        return False


def seen(start: float, events: Sequence[tuple[float, bytes]], retries: int) -> Seen:
    """Return a client's measurements of a whole stream. start: when the client sent its request."""
    *parts, (_, end) = events
    if end.strip() != b"[DONE]":
        raise RuntimeError(f"expected a whole stream, got one that ends in {end!r}")
    found = [(at, json.loads(line)) for at, line in parts]
    texts = [(at, choice["text"]) for at, part in found for choice in part["choices"] if choice["text"]]
    times, usage = [at for at, _ in texts], found[-1][1]["usage"]
    between, text = [later - earlier for earlier, later in pairwise(times)], "".join(text for _, text in texts)
    return Seen(times[0] - start, between, text, usage["prompt_tokens"], usage["completion_tokens"], retries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few tokens; nothing is written")
    is_smoke = parser.parse_args().smoke
    requests, new, rounds = ({2: 2}, 4, 1) if is_smoke else (REQUESTS, NEW, ROUNDS)
    stories, rows = Stories(), []
    with tempfile.TemporaryDirectory() as folder:
        for weights in WEIGHTS[:1] if is_smoke else WEIGHTS:
            path = convert(weights, Path(folder))
            with ours(weights, path) as own, peer(path) as other:
                for server in (own, other):
                    server.ask_all([Asked(stories.prompt(8), 4) for _ in range(max(requests))], max(requests))
                for clients, count in requests.items():
                    rounded = [[Asked(stories.prompt(PROMPT), new) for _ in range(count)] for _ in range(rounds)]
                    rows += compare(weights, (own, other), clients, rounded)
        with ours(weights, path) as own:
            loaded = {"weights": weights.name} | withstand(own, stories, SMALL_LOAD if is_smoke else LOAD)
    print(table(rows, loaded))
    if not is_smoke:
        found = about("python benches/server.py", "mlx", "mlx-lm", "numpy", "starlette", "uvicorn")
        found |= {"measured": time.strftime("%Y-%m-%d"), "threads": THREADS, "rows": rows, "load": loaded}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Stories:
    """Held-out stories, each used once."""

    def __init__(self) -> None:
        self._words, self._told = lexicon("english"), 0
        self._tokenizer = load("story")[1]

    def prompt(self, length: int) -> str:
        """Return the first `length` tokens of the next stories, as a string."""
        tokens: list[int] = []
        while len(tokens) < length:
            self._told += 1
            tokens += self._tokenizer.encode(tell(self._words, Random(f"server {self._told}")).text)
        return str(self._tokenizer.decode(tokens[:length]))


def convert(weights: Weights, folder: Path) -> Path:
    """Convert the bundled model to these weights if necessary. Return a folder that both servers can load."""
    source, path = bundled("story"), folder / "story"
    command = [sys.executable, "-m", "mlx_lm", "convert", "--hf-path", str(source), "--mlx-path", str(path)]
    if weights.convert:
        subprocess.run([*command, *weights.convert], check=True, capture_output=True, env=ENVIRONMENT)
    return path if weights.convert else source


def ours(weights: Weights, path: Path) -> Any:
    options = [*weights.options, "--max-running", str(LOAD["clients"])]
    return serving(OURS, path.name, ["tiny_llm_course", "serve", "--impl", "ref", "--model", str(path), *options])


def peer(path: Path) -> Any:
    return serving(PEER, "default_model", ["mlx_lm", "server", "--model", str(path), "--log-level", "WARNING"])


@contextmanager
def serving(name: str, model: str, command: Sequence[str]) -> Iterator[Server]:
    """Start a server, wait until it answers, and stop it when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server, end = Server(name, f"http://127.0.0.1:{port}", model), time.monotonic() + 60
    with tempfile.TemporaryFile() as log:
        started = [sys.executable, "-m", *command, "--port", port]
        process = subprocess.Popen(started, stdout=log, stderr=log, env=ENVIRONMENT)
        try:
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    sys.exit(f"{name} does not serve:\n{log.read().decode()[-2000:]}")
                time.sleep(0.1)
            yield server
        finally:
            process.kill()
            process.wait()


def compare(
    weights: Weights, servers: Sequence[Server], clients: int, rounds: Sequence[Sequence[Asked]]
) -> list[dict[str, Any]]:
    """Send each round's requests to one server after the other. Return one row per server, with all rounds' figures."""
    found: dict[str, list[Seen]] = {server.name: [] for server in servers}
    seconds = dict.fromkeys(found, 0.0)
    for number, whole in enumerate(rounds):
        for server in servers:
            if (is_short := weights.is_slow and server.name == PEER) and number > 0:
                continue
            print(f"{weights.name}, clients: {clients}, round {number + 1}: {server.name} ...", file=sys.stderr)
            start = time.perf_counter()
            answers = server.ask_all(whole[: max(4, clients)] if is_short else whole, clients)
            seconds[server.name] += time.perf_counter() - start
            found[server.name] += [answer for answer in answers if answer]
    same = [one.text.strip() == other.text.strip() for one, other in zip(*found.values(), strict=False)]
    both = {"weights": weights.name, "clients": clients, "same texts": round(sum(same) / len(same), 3)}
    return [both | {"server": name} | figures(found[name], seconds[name]) for name in found]


def figures(found: Sequence[Seen], seconds: float) -> dict[str, Any]:
    """Return figures of these requests, with times in milliseconds. seconds: the time for all requests together."""
    times = {"first token": [each.first for each in found], "between": [gap for each in found for gap in each.between]}
    prompts, outputs = sum(each.prompt for each in found), sum(each.output for each in found)
    return {
        "requests": len(found),
        "requests a second": round(len(found) / seconds, 3),
        "output tokens a second": round(outputs / seconds, 2),
        "retries": sum(each.retries for each in found),
        "tokens of a prompt": round(prompts / len(found), 1),
        "tokens of an output": round(outputs / len(found), 1),
    } | {name: {f"p{p}": round(1e3 * percentile(of, p), 3) for p in (50, 95, 99)} for name, of in times.items()}


def withstand(server: Server, stories: Stories, load: dict[str, Any]) -> dict[str, Any]:
    """Send many requests of random lengths. Some clients disconnect. Return the figures of the other clients' requests,
    and what the server still holds afterwards."""
    random, asked, clients = Random(0), [], load["clients"]
    for number in range(load["requests"]):
        prompt, new = stories.prompt(random.randint(*load["prompt"])), random.randint(*load["new"])
        leaves_after = random.randint(1, new // 2) if number % load["leaving"] == 0 else None
        asked.append(Asked(prompt, new, leaves_after, is_exact=True))
    server.ask_all([Asked(stories.prompt(8), 4) for _ in range(clients)], clients)
    print(f"{len(asked)} requests, clients: {clients} ...", file=sys.stderr)
    start = time.perf_counter()
    answers = server.ask_all(asked, clients)
    found = figures([answer for answer in answers if answer], time.perf_counter() - start)
    time.sleep(1)  # lets the server notice that the last client has disconnected
    metrics = dict(line.rsplit(" ", 1) for line in server.read("/metrics").splitlines())
    remaining = {name: float(metrics.get(f"tiny_llm_{of}", 0)) for name, of in REMAINING.items()}
    return {"clients": clients, "sent": len(asked), "hung up": answers.count(None)} | found | remaining


def table(rows: Sequence[dict[str, Any]], load: dict[str, Any]) -> str:
    lines = ["weights  clients  server         sent   req/s   tok/s  ms to the first token p50, p95, p99, and between"]
    for row in [*rows, load | {"server": f"{OURS}, load"}]:
        times = "  ".join(f"{row[of][f'p{p}']:10.1f}" for of in ("first token", "between") for p in (50, 95, 99))
        lines.append(
            f"{row['weights']:9}{row['clients']:7}  {row['server']:15}{row['requests']:5}"
            f"{row['requests a second']:8.2f}{row['output tokens a second']:8.1f}{times}"
        )
    return "\n".join([*lines, ", ".join(f"{name}: {load[name]:.0f}" for name in ("hung up", *REMAINING))])


if __name__ == "__main__":
    main()

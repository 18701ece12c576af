"""`tiny-llm batch`: serves a file of requests together, and writes each result as soon as its request has finished."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from tiny_llm_given.serving.answers import OutputDetails, Usage

from ..base.packages import DEFAULT_IMPL, package_of
from ..base.reporting import is_learners, reporting
from ..model.loaded_model import AUTO, Wanted
from ..model.options import DEFAULT_MODEL, Bits, Dtype, Fast, Impl, Layers, Model, Threads
from ..ui import CommandError, Lang, Messages, progress_console, show_note
from .batch_input import BatchRequest, read_requests
from .batch_results import BatchResult, Results
from .engine_protocols import Batch, Engine, Observer, Request
from .run_record import RunRecorder
from .serving import Options, Serving
from .serving_options import Cache, Check, Draft, MaxRunning, NumDrafts, Pages, PageSize, TokenBudget

__all__ = ["batch"]

MOST_EMPTY = 3  # the most steps in a row without work; more such steps mean that no request can proceed

_OF_ALL = (FloatingPointError, NotImplementedError)  # errors that end all requests: non-finite logits, or a stub


def batch(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help='A request on each line: {"prompt": TEXT} to continue, or {"messages": [{"role": "user", "content": '
            'TEXT}]} to answer. Other keys: "id", "max_tokens", "temperature", "top_k", "top_p", "min_p", '
            '"repetition_penalty", "seed", "stop", "stop_token_ids", "ignore_eos". Default: up to 256 tokens, each '
            "time the likeliest.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to which each result is added when its request is finished. Requests with a result in this "
            "file are skipped. Default: FILE.out.jsonl next to the requests.",
        ),
    ] = None,
    model: Model = DEFAULT_MODEL,
    impl: Impl = DEFAULT_IMPL,
    dtype: Dtype = None,
    bits: Bits = None,
    layers: Layers = AUTO,
    threads: Threads = None,
    fast: Fast = False,
    max_running: MaxRunning = 16,
    token_budget: TokenBudget = 256,
    cache: Cache = None,
    pages: Pages = None,
    page_size: PageSize = 16,
    draft: Draft = None,
    num_drafts: NumDrafts = 4,
    check: Check = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a record of each step, for `viz schedule`. An existing file is replaced."
        ),
    ] = None,
    lang: Lang = None,
) -> None:
    """Serve a file of requests together, and write a result for each. If you interrupt the command, run it again to
    serve the remaining requests."""
    with reporting(lang) as words:
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fast)
        options = Options(wanted, max_running, token_budget, cache, pages, page_size, check, draft, num_drafts)
        requests = read_requests(file)
        out = file.with_name(f"{file.name.removesuffix('.jsonl')}.out.jsonl") if out is None else out
        _check_files(file, out, record)
        with Results(out, [request.id for request in requests]) as results:
            left = [request for request in requests if request.id not in results.done]
            if len(left) < len(requests):
                show_note(words("batch_goes_on", done=len(requests) - len(left), count=len(requests), file=out))
            if left:
                _serve(Serving(options, words), left, results, record, words, len(requests))
            elif record:
                show_note(words("batch_no_record", file=record))


def _check_files(file: Path, out: Path, record: Path | None) -> None:
    named = [path for path in (file, out, record) if path is not None]
    if len({path.resolve() for path in named}) < len(named):
        raise CommandError("batch_same_file")
    for path in named[1:]:
        if not path.parent.is_dir():
            raise CommandError("batch_no_folder", file=path)


def _serve(
    serving: Serving,
    requests: Sequence[BatchRequest],
    results: Results,
    record: Path | None,
    words: Messages,
    count: int,
) -> None:
    run = _Run(serving, results, words)
    run.encode(requests)
    recorder = RunRecorder(run.about(), lambda: len(run.queue)) if record else None
    try:
        with _board(len(requests), words) as show:
            run.go([recorder] if recorder else [], show)
    except KeyboardInterrupt:
        show_note("\n" + words("batch_interrupted", done=len(results.done), count=count, file=results.path))
        raise typer.Exit(130) from None
    finally:
        if recorder and record:
            recorder.write(record)
    said = words("batch_done", count=len(requests), tokens=run.tokens, seconds=f"{run.seconds:.1f}", speed=run.speed)
    show_note(f"{said} {words('viz_wrote', file=results.path)}")
    if results.num_errors:
        show_note(words("batch_errors", count=results.num_errors), style="yellow")


@dataclass
class _Run:
    """A run of requests through an engine. queue: requests that are not in the engine yet, with their prompts'
    tokens."""

    serving: Serving
    results: Results
    words: Messages
    queue: deque[tuple[BatchRequest, list[int]]] = field(default_factory=deque)
    ended: int = 0  # tokens generated for finished requests
    start: float = field(default_factory=perf_counter)
    engine: Any = None
    empty: int = 0  # steps in a row without work

    def encode(self, requests: Sequence[BatchRequest]) -> None:
        for request in requests:
            try:
                self.queue.append((request, self.serving.encode(request.prompt)))
            except ValueError as error:
                self._refuse(request, 0, error)

    def about(self) -> dict[str, Any]:
        options = self.serving.options
        sizes = {"max_running": options.max_running, "token_budget": options.token_budget}
        return {"model": options.wanted.model, "cache": self.serving.kind.name, **sizes}

    def go(self, observers: Sequence[Observer], show: Callable[[_Run], None]) -> None:
        """Run until each request has a result. show: a function that is called with this run after each step."""
        if not self.queue:
            return
        longest = max(len(tokens) + request.params["max_tokens"] for request, tokens in self.queue)
        self.engine = self.serving.engine(longest, [*observers, self])
        self.start = perf_counter()
        while self.queue or self.engine.has_work:
            self._feed()
            for request in self.engine.step() if self.engine.has_work else []:
                if request.finish_reason is not None:
                    self._write(request)
            show(self)

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        """Raise a CommandError after too many steps in a row that computed nothing and preempted nothing."""
        self.empty = 0 if batch.chunks or batch.preempted else self.empty + 1
        if self.empty > MOST_EMPTY:
            raise CommandError("batch_stuck", waiting=len(engine.scheduler.waiting), exit_code=1)

    def on_abort(self, engine: Engine, request: Request) -> None:
        """Do nothing: `batch` aborts no request."""

    @property
    def waiting(self) -> int:
        return len(self.engine.scheduler.waiting) + len(self.queue)

    @property
    def tokens(self) -> int:
        """Return the number of tokens generated so far."""
        return self.ended + sum(len(request.output) for request in self.engine.scheduler) if self.engine else 0

    @property
    def seconds(self) -> float:
        return perf_counter() - self.start

    @property
    def speed(self) -> str:
        return f"{self.tokens / self.seconds:.1f} tok/s"

    def _feed(self) -> None:
        """Add requests to the engine, but only a few at a time, because adding one request takes time proportional to
        the number of requests in the engine."""
        while self.queue and len(self.engine.scheduler.waiting) < 2 * self.serving.options.max_running:
            asked, tokens = self.queue.popleft()
            try:
                is_chat = not isinstance(asked.prompt, str)
                self.engine.add(self.serving.request(asked.id, tokens, asked.params, is_chat=is_chat))
            except ValueError as error:
                if is_learners(error):
                    raise
                self._refuse(asked, len(tokens), error)

    def _refuse(self, asked: BatchRequest, length: int, error: ValueError) -> None:
        usage = _usage(length, 0)
        self.results.add(BatchResult(id=asked.id, text="", finish_reason="error", usage=usage, error=str(error)))

    def _write(self, request: Any) -> None:
        """Write a request's result. If the request ended with an error of the model or of a learner's code, raise the
        error instead, because such an error concerns all requests."""
        if isinstance(request.error, _OF_ALL) or (request.error is not None and is_learners(request.error)):
            raise request.error
        self.ended += len(request.output)
        usage = _usage(len(request.prompt), len(request.output))
        if self.serving.options.draft is not None:
            right, wrong = request.num_accepted, request.num_drafted - request.num_accepted
            usage.completion_tokens_details = OutputDetails(
                accepted_prediction_tokens=right, rejected_prediction_tokens=wrong
            )
        text, reason = request.text.text, request.finish_reason
        result = BatchResult(id=request.id, text=text, finish_reason=reason, usage=usage)
        if thinking := "".join(each or "" for each in getattr(request.text, "thoughts", ())):
            result.reasoning_content = thinking
        if request.error is not None:
            result.error = f"{type(request.error).__name__}: {request.error}"
        self.results.add(result)


def _usage(prompt: int, output: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=output, total_tokens=prompt + output)


@contextmanager
def _board(count: int, words: Messages) -> Iterator[Callable[[_Run], None]]:
    """Show a bar on stderr if stderr is a terminal. Yield a function that shows a run's progress on the bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}", markup=False))
    with Progress(*columns, console=progress_console(), disable=not sys.stderr.isatty(), transient=True) as progress:
        bar = progress.add_task("", total=count, state="")

        def show(run: _Run) -> None:
            state = words(
                "batch_state", speed=run.speed, running=len(run.engine.scheduler.running), waiting=run.waiting
            )
            progress.update(bar, completed=count - run.waiting - len(run.engine.scheduler.running), state=state)

        yield show

"""`tiny-llm serve`: serves week 3's engine through OpenAI's API."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import ipaddress
import re
import socket
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.extras import install_command
from ..base.packages import DEFAULT_IMPL, package_of
from ..base.reporting import reporting
from ..model.loaded_model import AUTO, Wanted
from ..model.options import DEFAULT_MODEL, Bits, Dtype, Fast, Impl, Layers, Model, Threads
from ..ui import CommandError, Lang, Messages, os_reason, phrase, show_note
from .dashboard import Dashboard
from .engine_protocols import AsyncEngine, Engine
from .serving import Options, Serving
from .serving_end import DRAIN, Ending
from .serving_options import Cache, Check, Draft, MaxRunning, NumDrafts, Pages, PageSize, TokenBudget

__all__ = ["serve"]

NEEDED = ("starlette", "uvicorn", "prometheus_client")  # the extra `serve`
PAGE = Path(__file__).with_name("serve_page.html")
SERVER = 7  # the day of week 3 on which the server is written
KEY = "[!-~]([ -~]*[!-~])?"  # clients encode other characters differently, and HTTP drops blanks at a header's ends


def serve(
    model: Model = DEFAULT_MODEL,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="The address to listen on. Only clients on this machine can reach the default."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="Port to listen on. 0 means any free port.")] = 8000,
    impl: Impl = DEFAULT_IMPL,
    dtype: Dtype = None,
    bits: Bits = None,
    layers: Layers = AUTO,
    threads: Threads = None,
    fast: Fast = False,
    max_running: MaxRunning = 16,
    max_waiting: Annotated[
        int,
        typer.Option(metavar="N", help="How many more requests may wait; the server refuses others with status 429."),
    ] = 64,
    token_budget: TokenBudget = 256,
    cache: Cache = None,
    pages: Pages = None,
    page_size: PageSize = 16,
    draft: Draft = None,
    num_drafts: NumDrafts = 4,
    check: Check = False,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            envvar="TINY_LLM_API_KEY",
            show_envvar=True,
            help="The key that clients have to send. Default: no key is needed.",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option(metavar="BYTES", help="How long a request's body may be.")] = 1 << 20,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long a request may take.")] = 600.0,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Origin of web pages that may send requests. May be given several times. Default: none."
        ),
    ] = None,
    lang: Lang = None,
) -> None:
    """Serve a model to clients of OpenAI's API, at /v1/completions and /v1/chat/completions."""
    with reporting(lang) as words:
        _check(port, max_waiting, max_body, timeout, api_key)
        wanted = Wanted(package_of(impl), model, dtype, bits, layers, threads, fast)
        options = Options(wanted, max_running, token_budget, cache, pages, page_size, check, draft, num_drafts)
        limits = {"max_body": max_body, "timeout": timeout, "api_key": api_key, "origins": allow_origin or []}
        with _listener(host, port) as listener:  # listens before the model is loaded, so that clients wait meanwhile
            asyncio.run(_Service(options, words, host, listener, max_waiting).run(limits))


def _check(port: int, max_waiting: int, max_body: int, timeout: float, api_key: str | None) -> None:
    for name, value, expected, holds in (
        ("--port", port, phrase("from_to", first=0, last=2**16 - 1), 0 <= port < 2**16),
        ("--max-waiting", max_waiting, phrase("at_least", least=0), max_waiting >= 0),
        ("--max-body", max_body, phrase("at_least", least=1), max_body >= 1),
        ("--timeout", timeout, phrase("above", least=0), timeout > 0),
        ("--api-key", api_key, phrase("key_letters"), api_key is None or re.fullmatch(KEY, api_key)),
    ):
        if not holds:
            raise CommandError("wrong_value", option=name, expected=expected, got=value)
    for name in NEEDED:
        try:
            import_module(name)
        except ModuleNotFoundError:
            raise CommandError("serve_no_extra", name=name, command=install_command("serve"), exit_code=1) from None


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise CommandError("serve_address", host=host, port=port, reason=os_reason(error), exit_code=1) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without this, events wait for acknowledgements
    return listener


def _url(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Return the URL under which this machine reaches a server that listens at this address."""
    if address.is_unspecified:  # the server listens at every address of the machine
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"


def _own_parts(page: str) -> list[str]:
    """Return the parts of a content security policy that allow only the page's own scripts and styles."""
    hashes = []
    for tag in ("script", "style"):
        for part in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
            hashes.append(f"{tag}-src 'sha256-{digest}'")
    return hashes


class _Service:
    """An engine in its own thread, and a server in this thread."""

    def __init__(self, options: Options, words: Messages, host: str, listener: socket.socket, max_waiting: int):
        self._options, self._words = options, words
        self._host, self._listener, self._max_waiting = host, listener, max_waiting
        self._address = ipaddress.ip_address(listener.getsockname()[0])
        self._serving: Serving | None = None  # None until the engine's thread has made it
        self._dashboard = Dashboard()

    async def run(self, limits: dict[str, Any]) -> None:
        """Serve until a signal ends the server."""
        options = self._options
        metrics = self._module("metrics").Metrics()
        most = options.max_running + self._max_waiting
        engine: AsyncEngine = self._module("async_engine").AsyncEngine(lambda: self._make_engine(metrics), most)
        await engine.start()
        try:
            max_length = await engine.call(lambda engine: engine.max_length)
            server = self._module("server")
            name = Path(options.wanted.model).name if Path(options.wanted.model).is_dir() else options.wanted.model
            assert self._serving is not None
            sampling = self._serving.sampling
            if sampling:
                settings = ", ".join(f"{setting} {value}" for setting, value in sampling.items())
                show_note(self._words("serve_sampling", settings=settings))
            model = server.ServedModel(name, self._serving.tokenizer, max_length, options.draft is not None, sampling)
            is_private = self._address.is_loopback and limits["api_key"] is None
            made = server.Server(
                engine, model, metrics, server.Limits(**limits, names=[self._host] if is_private else None)
            )
            gc.freeze()  # searching the loaded objects for garbage would stop all requests for half a second
            ending = await self._listen(made, self._routes(made, engine), name, engine)
        finally:
            await engine.stop()
        if engine.error is not None:
            raise engine.error
        ending.tell()

    def _make_engine(self, metrics: Any) -> Engine:
        """Make the engine. This method runs in the engine's thread, the only thread that may use the engine."""
        serving = self._serving = Serving(self._options, self._words, days=(SERVER,))
        self._dashboard.ended = metrics.ended
        return serving.engine(observers=[metrics, self._dashboard])

    def _module(self, name: str) -> Any:
        return import_module(f"{self._options.wanted.package}.serving.{name}")

    def _routes(self, server: Any, engine: AsyncEngine) -> list[Any]:
        """Return the routes of the page that shows the engine at work, and of that page's data."""
        from starlette.responses import HTMLResponse
        from starlette.routing import Route

        text = PAGE.read_text(encoding="utf-8")
        allowed = ["default-src 'none'", "connect-src 'self'", "img-src data:", "frame-ancestors 'none'"]
        policy = "; ".join([*allowed, *_own_parts(text)])

        async def page(request: Any) -> Any:
            return HTMLResponse(text, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})

        async def live(request: Any) -> Any:
            return self._module("event_stream").EventStream(self._dashboard.events(engine))

        return [Route("/", page), Route("/live", server.guarded(live))]

    async def _listen(self, server: Any, routes: list[Any], name: str, engine: AsyncEngine) -> Ending:
        from .connections import Runner

        runner = Runner(server.app(routes))
        ending = Ending(runner, engine, self._words)  # handles signals before the server's address is printed
        self._tell(name, server.limits.api_key is not None)
        await ending.serve(self._listener)
        return ending

    def _tell(self, name: str, has_key: bool) -> None:
        count, url = self._options.max_running, _url(self._address, self._listener.getsockname()[1])
        show_note(self._words("serve_ready", model=name, running=count, waiting=self._max_waiting), style="")
        show_note(self._words("serve_addresses", url=url, seconds=DRAIN), style="")
        if not self._address.is_loopback and not has_key:
            show_note(self._words("serve_open_to_all", host=self._address), style="yellow")

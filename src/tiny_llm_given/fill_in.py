"""The process that fills in a chat template. Given.

The process reads lines of JSON: first the template, then one conversation per line. For each conversation, the process
writes a line of JSON. The process imports only Jinja, so it starts in a tenth of a second. Transformers offers
templates the same environment, but takes more than a second to import.
"""

import json
import resource
import signal
import sys
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Template, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["compiled", "main"]


class _Generation(Extension):
    """The tag `{% generation %}`, which marks text that a model is trained to write, and leaves this text unchanged."""

    tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@cache
def compiled(source: str) -> Template:
    """Compile a chat template with the filters and functions that Transformers offers."""
    extensions = [_Generation, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON. Unlike Jinja's own filter, do not escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _RefusedError(Exception):
    """The error raised when the template refuses a conversation."""


def _raise(message: str) -> None:
    raise _RefusedError(message)


def _answer(source: str, given: dict[str, Any], longest: int) -> dict[str, str]:
    try:
        text = compiled(source).render(given)
    except MemoryError:
        return {"error": "takes too much memory"}
    except _RefusedError as error:
        return {"refusal": str(error)[:longest]}
    except Exception as error:  # a template can raise any exception
        return {"error": f"fails with {type(error).__name__}: {error}"[:longest]}
    return {"text": text} if len(text) <= longest else {"error": f"writes more than {longest} characters"}


def main() -> None:
    """Answer each line of input until the input ends. A conversation that takes too long ends this process."""
    seconds, memory, longest = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with suppress(ValueError):  # macOS refuses: a process has more memory mapped from the start
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    source = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time, after which a signal ends the process
        answer = json.dumps(_answer(source, json.loads(line), longest))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(answer, flush=True)


if __name__ == "__main__":
    main()

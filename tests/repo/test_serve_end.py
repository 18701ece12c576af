"""`tiny-llm serve` in a terminal: the address that it prints, and, after Ctrl-C, the requests for which it waits, and
how they end."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path

import pytest
from learner import Clone, Terminal

from tiny_llm_course.serve.serving_end import DRAIN
from tiny_llm_course.ui.language import LANGUAGES, Messages

SERVE = ["serve", "--port", "0", "--impl", "ref"]
COMMAND = [sys.executable, "-m", "tiny_llm_course", *SERVE]
PATIENCE = 600  # seconds: by then, requests have ended by themselves on any machine
PATIENT = """
import sys, threading
from tiny_llm_course import __main__ as command; from tiny_llm_course.serve import serving_end as end
from tiny_llm_ref.serving.engine import Engine

signals, is_time = int(sys.argv.pop(1)), threading.Event()

def step(self, first=Engine.step):
    if any(request.output for request in self.scheduler):
        is_time.wait()
    return first(self)

def ask_to_end(self, first=end.Ending._ask_to_end):
    global signals
    signals -= 1
    if signals == 0:
        is_time.set()
    first(self)

Engine.step, end.Ending._ask_to_end = step, ask_to_end
end.DRAIN = end.CUT = PATIENCE
command.main()
""".replace("PATIENCE", str(PATIENCE))  # with a number: requests that have begun wait for so many signals
STUCK = """
import sys, threading
from tiny_llm_course import __main__ as command; from tiny_llm_course.serve import serving_end as end
from tiny_llm_ref.serving.engine import Engine

def step(self, first=Engine.step):
    if any(request.output for request in self.scheduler):
        print("stuck", file=sys.stderr)
        threading.Event().wait()
    return first(self)

Engine.step, end.CUT = step, 0.1
command.main()
"""
ROOT = Path(__file__).parents[2]
CTRL_C = "\x03"


def served(language: str, tmp_path: Path, *options: str, command: list[str] = COMMAND) -> Terminal:
    environment = Clone(ROOT).environment | {"LANG": "C.UTF-8", "COLUMNS": "200"}
    terminal = Terminal([*command, "--lang", language, *options], tmp_path, environment)
    terminal.wait_for("Ctrl-C")
    return terminal


def port_of(terminal: Terminal) -> int:
    found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", terminal.screen)
    assert found, terminal.screen
    return int(found[1])


@contextmanager
def streams(port: int, count: int, tokens: int = 1000) -> Iterator[HTTPResponse]:
    """Yield the answer to a call that makes `count` requests, each for `tokens` tokens, once some tokens have come."""
    body = {"model": "story", "prompt": "Once", "n": count, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    with closing(HTTPConnection("127.0.0.1", port, timeout=600)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.readline().startswith(b"data: ")
        yield response


@pytest.mark.parametrize(("language", "host"), [("en", "127.0.0.1"), ("ja", "0.0.0.0")])
def test_addresses(language: str, host: str, tmp_path: Path) -> None:
    """Both the page's address and the clients' base URL answer."""
    terminal, words = served(language, tmp_path, "--host", host), Messages(language)
    url = f"http://127.0.0.1:{port_of(terminal)}"
    assert words("serve_addresses", url=url, seconds=DRAIN) in terminal.screen
    answers = {}
    for path in ("/", "/v1"):
        with closing(HTTPConnection("127.0.0.1", port_of(terminal), timeout=600)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            answers[path] = response.status, response.headers.get_content_type(), response.read().decode()
    assert answers["/"][:2] == (200, "text/html")
    assert answers["/v1"][:2] == (200, "application/json")
    assert "POST /v1/chat/completions" in json.loads(answers["/v1"][2])["endpoints"]
    terminal.send(CTRL_C)
    assert terminal.exit_code() == 0
    assert terminal.screen.rstrip().endswith(words("serve_stopped"))
    assert words("serve_waits", count=0, seconds=DRAIN) not in terminal.screen


@pytest.mark.parametrize("language", LANGUAGES)
def test_ctrl_c_says_what_it_waits_for(language: str, tmp_path: Path) -> None:
    terminal = served(language, tmp_path, command=[sys.executable, "-c", PATIENT, "1", *SERVE])
    words = Messages(language)
    with streams(port_of(terminal), 2, tokens=20) as response:
        terminal.send(CTRL_C)
        terminal.wait_for("\n" + words("serve_waits", count=2, seconds=PATIENCE))
        assert response.read().endswith(b"data: [DONE]\n\n")
    assert terminal.exit_code() == 0
    assert terminal.screen.rstrip().endswith(words("serve_answered"))


def test_a_second_ctrl_c_says_what_it_cut_off(tmp_path: Path) -> None:
    terminal, words = served("en", tmp_path, command=[sys.executable, "-c", PATIENT, "2", *SERVE]), Messages("en")
    with streams(port_of(terminal), 8) as response:
        terminal.send(CTRL_C)
        terminal.wait_for(words("serve_waits", count=8, seconds=PATIENCE))
        terminal.send(CTRL_C)
        terminal.wait_for("\n" + words("serve_cuts"))
        last = json.loads(response.read().rpartition(b"data: ")[2])
        assert last["error"]["code"] == "stopping"
    assert terminal.exit_code() == 0
    assert terminal.screen.rstrip().endswith(f"{words('serve_cut', cut=8, count=8)}\n{words('serve_stopped')}")


def test_a_second_ctrl_c_does_not_wait_for_a_step(tmp_path: Path) -> None:
    """The step in this test never ends."""
    terminal, words = served("ja", tmp_path, command=[sys.executable, "-c", STUCK, *SERVE]), Messages("ja")
    with streams(port_of(terminal), 3) as response:
        terminal.wait_for("stuck")
        terminal.send(CTRL_C)
        terminal.wait_for(words("serve_waits", count=3, seconds=DRAIN))
        terminal.send(CTRL_C)
        terminal.wait_for(words("serve_cuts"))
        assert terminal.exit_code() == 0
        assert terminal.screen.rstrip().endswith(words("serve_forced", count=3))
        with pytest.raises((IncompleteRead, ConnectionError)):
            response.read()

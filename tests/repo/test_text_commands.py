"""`tiny-llm main` and `tiny-llm chat`, run as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from learner import run_python, start_python
from typer.testing import CliRunner
from waiting import until

import tiny_llm_ref
from tiny_llm_course.__main__ import app
from tiny_llm_course.generation.chat import Chat
from tiny_llm_course.generation.text_commands import DEFAULT_PROMPT, main
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.ui.language import Messages
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref import kv_cache, models
from tiny_llm_ref.generate import generate_simple, stream_text
from tiny_llm_ref.sampler import greedy, make_sampler

COMMAND = ["-m", "tiny_llm_course"]
PROMPT = "昔々、🦜が"
LENGTH = len(PROMPT.encode())  # in tokens, which are bytes
OVERHEAD = len("U" + "user\n" + "E" + "\n" + "U" + "assistant\n")  # chat template: U and E are one token each
STATISTICS = """
prompt +{prompt} tokens +[0-9.]+ tok/s   first token after [0-9.]+ s
generated +{generated} tokens +[0-9.]+ tok/s   {ended}
memory +[0-9]+ MB at most
"""


@pytest.fixture
def device() -> None:
    """The commands choose their own: nothing to repeat on each."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stored in bfloat16, with a context of 512 tokens, one for each byte. It never ends a text by itself."""
    path = tmp_path_factory.mktemp("checkpoint")
    config = untrained_config()
    weights = write_untrained(path, config, expected_shapes(ModelConfig.from_hf(config)))
    halves = {name: mx.array(weight).astype(mx.bfloat16) for name, weight in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), halves)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    return path


@pytest.fixture(scope="module")
def without_template(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("without") / "template"
    shutil.copytree(checkpoint, path)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return path


class Reference:
    """What the commands are to print, by the reference's own functions. One sampler serves all calls."""

    def __init__(self, checkpoint: Path, dtype: mx.Dtype | None):
        self.model, self.tokenizer = models.load(checkpoint, dtype)
        self.sampler: Any = None

    def sample(self, **settings: Any) -> Reference:
        self.sampler = make_sampler(**settings)
        return self

    def text(self, prompt: str | list[dict[str, str]], max_tokens: int) -> str:
        encode = self.tokenizer.encode if isinstance(prompt, str) else self.tokenizer.apply_chat_template
        tokens = encode(prompt) if isinstance(prompt, str) else encode(prompt, add_generation_prompt=True)
        new = generate_simple(self.model, tokens, self.sampler, max_tokens)
        return "".join(stream_text(new, self.tokenizer))


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint, mx.float32 if mx.default_device().type == mx.DeviceType.cpu else None)


def environment(**changes: str) -> dict[str, str]:
    dropped = ("PYTHON", "HF_", "TRANSFORMERS_", "FORCE_")
    return (
        {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        | {"HF_HUB_OFFLINE": "1", "TERM": "dumb"}
        | changes
    )


def run(*arguments: object, stdin: str | None = None, **env: str) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr. stdin None: /dev/null."""
    result = run_python([*COMMAND, *map(str, arguments)], Path.cwd(), environment(**env), stdin, timeout=120)
    return result.returncode, result.stdout.encode(), result.stderr


def call(*arguments: object) -> tuple[int, bytes, str]:
    """As `run`, but in this process, which is quicker."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input="")
    return result.exit_code, result.stdout_bytes, result.stderr


def as_line(text: str) -> bytes:
    return (text if text.endswith("\n") else text + "\n").encode()


def assert_statistics(stderr: str, prompt: int, generated: int, ended: str) -> None:
    expected = STATISTICS.format(prompt=prompt, generated=generated, ended=re.escape(ended))
    assert re.fullmatch(expected, stderr), stderr


def test_streams_and_reports(checkpoint: Path) -> None:
    half = Reference(checkpoint, mx.float16)
    half.sample(temperature=0.9, top_k=80, top_p=0.95, min_p=0.001, repetition_penalty=1.1, seed=7)
    sampling = ["--temp", 0.9, "--top-k", 80, "--top-p", 0.95, "--min-p", 0.001, "--repetition-penalty", 1.1]
    options = ["--model", checkpoint, "--dtype", "float16", "--raw", "--prompt", PROMPT, "--max-tokens", 30]
    code, stdout, stderr = run("main", *options, "--seed", 7, *sampling)
    assert (code, stdout) == (0, as_line(half.text(PROMPT, 30)))
    assert_statistics(stderr, LENGTH, 30, "--max-tokens reached")


def test_ascii_only_output(checkpoint: Path, reference: Reference) -> None:
    expected = reference.sample(temperature=0.7, seed=8).text(PROMPT, 30)
    options = ["--raw", "--prompt", PROMPT, "--max-tokens", 30, "--seed", 8]
    code, stdout, _ = run("main", "--model", checkpoint, *options, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (code, stdout) == (0, as_line(expected).decode().encode("ascii", "replace"))


def test_prompt_from_stdin_and_stop_strings(checkpoint: Path, reference: Reference) -> None:
    text = reference.sample(temperature=0.7, seed=9).text(PROMPT, 60)
    stop = text[20:22]
    options = ["--raw", "--seed", 9, "--max-tokens", 60, "--stop", "never seen", "--stop", stop]
    code, stdout, stderr = run("main", "--model", checkpoint, *options, stdin=f"{PROMPT}\n")
    assert (code, stdout) == (0, as_line(text[: text.index(stop)]))
    assert "stop string found" in stderr


def test_chat_template_is_the_default(checkpoint: Path) -> None:
    options = ["--prompt", PROMPT, "--system", "賢く", "--max-tokens", 0]
    code, stdout, stderr = call("main", "--model", checkpoint, *options)
    assert (code, stdout) == (0, b"")
    tokens = LENGTH + OVERHEAD + len("U" + "system\n" + "E\n") + len("賢く".encode())
    assert stderr.splitlines()[1:3] == [
        f"prompt     {tokens:>6} tokens",
        f"generated  {0:>6} tokens {'':>14}   --max-tokens reached",
    ]


def test_raw_without_a_template_until_the_context_is_full(without_template: Path) -> None:
    code, _, stderr = call("main", "--model", without_template, "--prompt", "x" * 508, "--temp", 0)
    assert code == 0
    assert_statistics(stderr, 508, 4, "context of 512 tokens full")


def test_the_bundled_model_is_the_default() -> None:
    code, stdout, stderr = run("main", "--max-tokens", 12, "--temp", 0)
    assert code == 0
    assert "prompt: Tell me a short story." in stderr
    model, tokenizer = models.load("story", mx.float32)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": DEFAULT_PROMPT}], add_generation_prompt=True)
    assert stdout == as_line("".join(stream_text(generate_simple(model, prompt, greedy, 12), tokenizer)))
    assert re.fullmatch(rb"[A-Z][A-Za-z ,.]+\n", stdout)


def test_closed_pipe(checkpoint: Path) -> None:
    command = [sys.executable, *COMMAND, "main", "--model", str(checkpoint), "--prompt", "x", "--seed", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout
        assert process.stderr
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


BAD_VALUES = {
    "--temp -1": "--temp: expected a number, 0 or more, got -1.0",
    "--temp nan": "--temp: expected a number, 0 or more, got nan",
    "--top-k -1": "--top-k: expected a whole number, 0 or more, got -1",
    "--top-p 1.5": "--top-p: expected a number above 0 and at most 1, got 1.5",
    "--min-p 2": "--min-p: expected a number from 0 to 1, got 2.0",
    "--repetition-penalty 0": "--repetition-penalty: expected a number from 0.01 to 10, got 0.0",
    "--max-tokens -3": "--max-tokens: expected 0 or more, got -3",
    "--seed -1": "--seed: expected a whole number from 0 to 2**64 - 1, got -1",
    "--stop=": "--stop: expected a text, or a list of 4 at most, of 1 to 256 characters each, got ''",
    "--impl theirs": "--impl: expected one of ref, mine, got 'theirs'",
    "--dtype int8": "--dtype: expected one of float32, bfloat16, float16, got 'int8'",
    "--prompt=": "the prompt: expected some text, got none; give --prompt TEXT or pipe a text in",
    "--raw --system x": "--system: expected a chat, got --raw; leave one of them out",
}


@pytest.mark.parametrize("options", BAD_VALUES)
def test_bad_values_before_anything_is_loaded(options: str) -> None:
    code, stdout, stderr = call("main", "--model", "/nowhere", *options.split())
    assert (code, stdout, stderr.count("\n")) == (2, b"", 1)
    assert stderr.startswith(f"error: {BAD_VALUES[options]}")


def test_prompt_and_checkpoint_that_do_not_go_together(checkpoint: Path, without_template: Path) -> None:
    no_template = "expected a checkpoint with a chat template, got one without"
    too_long = "the prompt: expected fewer tokens than this model's context of 512, got 512; shorten the prompt"
    calls: dict[str, list[object]] = {
        too_long: ["main", "--model", checkpoint, "--raw", "--prompt", "x" * 512],
        "the text: expected UTF-8, got other bytes": ["main", "--model", checkpoint, "--prompt", "\udcff"],
        f"--chat: {no_template}": ["main", "--model", without_template, "--prompt", "x", "--chat"],
        f"--system: {no_template}": ["main", "--model", without_template, "--prompt", "x", "--system", "y"],
        f"--model: {no_template}": ["chat", "--model", without_template],
    }
    for message, arguments in calls.items():
        code, stdout, stderr = call(*arguments)
        assert (code, stdout, stderr.count("\n")) == (2, b"", 1)
        assert stderr.startswith(f"error: {message}")


def test_loading_errors(checkpoint: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    (damaged / "model.safetensors").write_bytes(b"half a fi")
    (tmp_path / "empty").mkdir()
    expected = {
        damaged: "model.safetensors is damaged or not complete",
        tmp_path / "empty": "has no config.json",
        tmp_path / "nowhere": "no checkpoint directory",
        "some/model": "neither a directory nor downloaded yet, and the Hub cannot be reached",
    }
    for model, message in expected.items():
        code, stdout, stderr = run("main", "--model", model, "--prompt", "x", HF_HOME=str(tmp_path / "hub"))
        assert (code, stdout, stderr.count("\n")) == (1, b"", 1)
        assert stderr.startswith("error: --model: ")
        assert message in stderr


def write_package(parent: Path, last_solved_day: int, week: int = 1) -> Path:
    """A learner's package: all days up to the given one are solved."""
    package = parent / "tiny_llm"
    package.mkdir()
    for file in Path(tiny_llm_ref.__file__).parent.glob("*.py"):
        stub = make_stub(file.read_text(), is_solved=lambda task: (task.week, task.day) <= (week, last_solved_day))
        (package / file.name).write_text(stub)
    return package


def edit(file: Path, old: str, new: str) -> int:
    """The line that was edited."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def test_unsolved_tasks_are_named(checkpoint: Path, tmp_path: Path) -> None:
    package = write_package(tmp_path, 3)
    line = (package / "layer_norm.py").read_text().splitlines().index("        raise NotImplementedError(") + 1
    for options in [[], ["--temp", 0]]:  # the first is stopped by day 7's sampler
        code, stdout, stderr = run(
            "main", "--impl", "mine", "--model", checkpoint, "--prompt", "x", *options, PYTHONPATH=str(tmp_path)
        )
        assert (code, stdout) == (1, b"")
        number, first, file, test = stderr.splitlines()
        assert re.fullmatch(r"src/tiny_llm is not finished\. Tasks still to be written: \d\d", number)
        assert first == "first: w1d4.1, week 1 day 4 (RMSNorm and the gated MLP)"
        assert file == f"file:  {os.path.relpath(package / 'layer_norm.py')}:{line}"
        assert test == "test:  ./course test w1d4.1"


def test_learners_code_after_day_6(checkpoint: Path, reference: Reference, tmp_path: Path) -> None:
    """It runs at temperature 0; an error in it is shown where it is; so is a file that does not parse or exist."""
    package = write_package(tmp_path, 6)

    def mine(*options: object) -> tuple[int, bytes, str]:
        common = ["--impl", "mine", "--model", checkpoint, "--raw", "--prompt", PROMPT, "--max-tokens", 8]
        return run("main", *common, *options, PYTHONPATH=str(tmp_path))

    expected = reference.sample(temperature=0).text(PROMPT, 8)
    assert mine("--temp", 0)[:2] == (0, as_line(expected))

    line = edit(package / "mlp.py", "return self.down_proj(", "return self.down_proj(x @ x + ")
    code, stdout, stderr = mine("--temp", 0)
    assert (code, stdout) == (1, b"")
    assert stderr.startswith("error in src/tiny_llm:\n")
    assert f'File "{package / "mlp.py"}", line {line}, in __call__\n    return self.down_proj(x @ x + ' in stderr
    assert "ValueError: [matmul]" in stderr
    assert stderr.count("File ") == 3

    line = edit(package / "attention.py", "def causal_mask(", "def causal_mask((")
    code, stdout, stderr = mine("--temp", 0)
    assert (code, stdout) == (1, b"")
    assert stderr.startswith(f'error in src/tiny_llm:\n  File "{package / "attention.py"}", line {line}\n')
    assert "SyntaxError: " in stderr
    assert stderr.count("File ") == 1

    (package / "sampler.py").unlink()
    (package / "generate.py").write_text("")
    code, _, stderr = mine("--temp", 0)
    assert (code, stderr) == (1, "error in src/tiny_llm:\nModuleNotFoundError: No module named 'tiny_llm.sampler'\n")


def test_the_reference_has_a_cache(checkpoint: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reference.sample(temperature=0.8, seed=3).text(PROMPT, 20)
    monkeypatch.setattr(tiny_llm_ref.generate, "generate_simple", None)
    options = ["--raw", "--prompt", PROMPT, "--temp", 0.8, "--seed", 3, "--max-tokens", 20]
    code, stdout, _ = call("main", "--impl", "ref", "--model", checkpoint, *options)
    assert (code, stdout) == (0, as_line(expected))


def test_learners_cache_is_used_once_it_is_written(checkpoint: Path, reference: Reference, tmp_path: Path) -> None:
    """All of week 2 day 1, that is. Until then, and in a course that is older, it is week 1's loop."""
    package = write_package(tmp_path, 1, week=2)
    loops, whole = (package / "generate.py").read_text(), Path(kv_cache.__file__).read_text()
    with_cache, without = "    tokens = new = list(prompt)\n", "    tokens = list(prompt)\n"

    def runs_without(line: str) -> bool:
        """Whether text is generated where this line, of one of the loops, raises an error."""
        (package / "generate.py").write_text(loops)
        edit(package / "generate.py", line, "    raise RuntimeError\n")
        common = ["--impl", "mine", "--model", checkpoint, "--raw", "--prompt", PROMPT, "--max-tokens", 8]
        code, stdout, stderr = run("main", *common, "--temp", 0, PYTHONPATH=str(tmp_path))
        assert (code, stdout) == (0, expected) or stderr.endswith("RuntimeError\n")
        return code == 0

    expected = as_line(reference.sample(temperature=0).text(PROMPT, 8))
    assert runs_without(without)
    assert not runs_without(with_cache)
    (package / "kv_cache.py").write_text(make_stub(whole, is_solved=lambda task: str(task) != "w2d1.2"))
    assert runs_without(with_cache)
    (package / "kv_cache.py").write_text(whole)
    loops = loops.replace("def generate(", "def renamed(")
    assert runs_without(with_cache)


def test_learners_error_while_the_model_is_built(checkpoint: Path, tmp_path: Path) -> None:
    """It may be a ValueError, as those of a damaged checkpoint are, or their own NotImplementedError."""
    file = write_package(tmp_path, 7) / "layer_norm.py"
    options = ["--impl", "mine", "--model", checkpoint, "--prompt", "x"]
    edit(file, "        self.", "        mx.zeros(3).reshape(2)\n        self.")
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert code == 1
    assert f'File "{file}"' in stderr
    assert "ValueError: [reshape]" in stderr

    edit(file, "mx.zeros(3).reshape(2)", "raise NotImplementedError('tomorrow')")
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert code == 1
    assert stderr.endswith("NotImplementedError: tomorrow\n")

    options = ["--impl", "mine", "--model", tmp_path, "--prompt", "x"]
    code, _, stderr = run("main", *options, PYTHONPATH=str(tmp_path))
    assert (code, stderr) == (1, f"error: --model: {tmp_path} has no config.json\n")


def test_chat_keeps_what_was_said(checkpoint: Path, reference: Reference) -> None:
    lines = [
        "こんにちは",
        "",
        "/help",
        "/nonsense",
        "Again",
        "/system 短く",
        "Third",
        "/reset",
        "Last",
        "/exit",
        "never",
    ]
    code, stdout, stderr = run("chat", "--model", checkpoint, "--max-tokens", 20, "--seed", 5, stdin="\n".join(lines))
    reference.sample(temperature=0.7, seed=5)
    system = {"role": "system", "content": "短く"}
    said: list[dict[str, str]] = []
    answers = []
    for question in ["こんにちは", "Again", "Third"]:
        said.append({"role": "user", "content": question})
        answers.append(reference.text([system, *said] if question == "Third" else said, 20))
        said.append({"role": "assistant", "content": answers[-1]})
    answers.append(reference.text([system, {"role": "user", "content": "Last"}], 20))
    assert (code, stdout) == (0, b"".join(map(as_line, answers)))
    for part in ["/reset ", "no command /nonsense; /help", "system prompt: 短く", "conversation is forgotten"]:
        assert part in stderr
    statistics = re.findall(r"^(\d+) tokens in, 20 out at [0-9.]+ tok/s; --max-tokens reached$", stderr, re.M)
    assert len(statistics) == 4
    assert int(statistics[0]) == 15 + OVERHEAD
    assert int(statistics[3]) == len("Last") + OVERHEAD + len("U" + "system\n短く" + "E\n") + 4


def test_chat_forgets_the_oldest_turns(checkpoint: Path) -> None:
    lines = ["a" * 200, "b" * 200, "c" * 600, "d" * 60]
    code, stdout, stderr = run("chat", "--model", checkpoint, "--max-tokens", 2, "--temp", 0, stdin="\n".join(lines))
    assert (code, stdout != b"") == (0, True)
    first, second, refusal, forgets, last = stderr.splitlines()
    assert first.startswith(f"{200 + OVERHEAD} tokens in, 2 out")
    assert refusal == "Your message has 619 tokens, but the context holds only 512: shorten the message."
    assert forgets == "The context of 512 tokens is full, so the oldest 1 of 2 turns were forgotten."
    assert int(second.split()[0]) > 400 > int(last.split()[0])


class Terminal:
    """A command that runs in a terminal of its own."""

    def __init__(self, *arguments: object, **env: str):
        self._master, theirs = os.openpty()
        words = [*COMMAND, *map(str, arguments)]
        self._process = start_python(words, Path.cwd(), environment(**env), [theirs] * 3, in_terminal=True)
        os.close(theirs)
        self.screen = ""
        self._read = b""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str, seconds: float = 120) -> str:
        """What was printed since the last call, once the pattern occurs in it."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.new, re.S):
            assert time.monotonic() < end, f"no {pattern!r} in {self.new!r}"
            if not self._receive():
                break
        assert re.search(pattern, self.new, re.S), f"no {pattern!r} in {self.new!r}"
        new, self._read = self.new, b""
        self.screen += new
        return new

    def exit_code(self, seconds: float = 120) -> int:
        end = time.monotonic() + seconds
        while self._receive():
            assert time.monotonic() < end, f"still running after {self.new!r}"
        self.screen += self.new
        return self._process.wait(seconds)

    def is_asleep(self) -> bool:
        """Whether the process waits: after a prompt, for a key or a signal."""
        shown = subprocess.check_output(["ps", "-o", "stat=", "-p", str(self._process.pid)], text=True)
        return shown.startswith("S")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def new(self) -> str:
        return self._read.decode(errors="replace").replace("\r\n", "\n")

    def _receive(self) -> bool:
        """Whether the terminal is still open."""
        if select.select([self._master], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # Linux: how a closed terminal reads
                data = os.read(self._master, 4096)
                self._read += data
                return bool(data)
            return False
        return True


@pytest.fixture
def terminal(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[Terminal]:
    terminal = Terminal(*request.param, "--model", checkpoint, "--seed", 2)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("terminal", [["main"]], indirect=True)
def test_ctrl_c_while_loading(terminal: Terminal) -> None:
    terminal.wait_for(r"prompt: Tell me a short story\.\nloading ")
    terminal.type("\x03")
    assert terminal.exit_code() == 130
    assert terminal.screen.endswith("\ninterrupted\n")
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("terminal", [["main", "--max-tokens", 450]], indirect=True)
def test_ctrl_c_while_generating(terminal: Terminal) -> None:
    terminal.wait_for(r"loading [^\n]*\n.{10}")
    terminal.type("\x03")
    assert terminal.exit_code() == 130
    statistics = terminal.screen[terminal.screen.rindex("\n\n") + 1 :]
    assert re.search(r"generated +\d+ tokens +[0-9.]+ tok/s   interrupted\n", statistics)
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("terminal", [["chat", "--max-tokens", 450]], indirect=True)
def test_chat_in_a_terminal(terminal: Terminal) -> None:
    terminal.wait_for("/help lists the commands, Ctrl-D ends.\n> ")
    terminal.type("Hellp\x7fo\n")  # Backspace
    terminal.wait_for("o\n.{10}")
    terminal.type("\x03")
    answer = terminal.wait_for("interrupted\n> ")
    statistics = re.search(r"\n(\d+) tokens in, (\d+) out", answer)
    assert statistics
    assert int(statistics[1]) == len("Hello") + OVERHEAD
    terminal.type("\x10\n")  # Ctrl-P, or Up: Hello again, with what was said before
    terminal.wait_for("Hello.*\n.{10}")
    terminal.type("\x03")
    again = re.search(r"\n(\d+) tokens in", terminal.wait_for("interrupted\n> "))
    assert again
    is_forgotten = "forgot the oldest 1 of 1 turns" in terminal.screen  # if Ctrl-C came late, the first answer is long
    assert is_forgotten or int(again[1]) > 2 * len("Hello") + 2 * OVERHEAD
    until(terminal.is_asleep)  # Python's readline does not see a signal in the moment after it shows the prompt
    terminal.type("\x03")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize(
    ("text", "interrupted", "shown"),
    [("", True, "\n3 in\n"), ("a", True, "3 in\n"), ("a\n", True, "\n3 in\n"), ("a\n", False, "3 in\n")],
    ids=["before the first word", "in a line", "after a line", "not interrupted"],
)
def test_statistics_have_a_line_of_their_own(
    text: str, interrupted: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is echoed where the answer stops. Only an answer that stops within a line ends that line itself."""
    reply = SimpleNamespace(text=text, interrupted=interrupted, line="3 in")
    session: Any = SimpleNamespace(
        context=9, max_tokens=4, encode_chat=lambda system, said: [1, 2, 3], reply=lambda prompt: reply
    )
    Chat(session, None, Messages("en"))._answer("x")
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("terminal", [["chat", "--max-tokens", 5]], indirect=True)
def test_chat_ends_at_ctrl_d(terminal: Terminal) -> None:
    terminal.wait_for("Ctrl-D ends.\n> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.screen


def test_help_explains_every_option() -> None:
    code, stdout, _ = run("main", "--help", COLUMNS="200")
    assert code == 0
    for name in [*signature(main).parameters, "chat"]:
        assert f"--{name.replace('_', '-')}" in stdout.decode()
    code = "import sys, tiny_llm_course.__main__; print({name.partition('.')[0] for name in sys.modules})"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment()).stdout
    assert "typer" in imported
    assert not re.search("'(mlx|mlx_lm|transformers|numpy|pydantic|tiny_llm_given)'", imported)

"""The messages of the commands in both languages: the texts themselves, and each place that uses a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
from typer import Exit
from typer.testing import CliRunner

from tiny_llm_course.base.reporting import reporting
from tiny_llm_course.commands import app
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.ui.command_table import FOR_INSTRUCTORS, FOR_LEARNERS
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import LANGUAGES, Messages

COURSE = Path(__file__).parents[2] / "src" / "tiny_llm_course"
FILES = sorted(COURSE.rglob("*.py"))
ERRORS, MESSAGES = (read_toml(COURSE / "ui" / name) for name in ("errors.toml", "messages.toml"))
JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
ALIKE = {"doctor_python", "trace_softmax", "viz_page_not_a_number"}  # Japanese uses the English word
WORDS = {"words", "in_all", "Messages()"}  # how Messages are called
WITH_REASONS = ("bad_model", "grades_unreadable")  # of libraries, which speak English
PRINTERS = {"show_note", "show", "echo", "print"}
FOR_MAINTAINERS = ("learner/stub_files.py", "tasks/stubs.py", "grading/judge.py", "grading/worker.py")


device = pytest.fixture(lambda: None)  # nothing here computes on one


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8"), str(file)) for file in FILES}


@cache
def error_classes() -> set[str]:
    """Return the names of CommandError and its subclasses."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    derived = {node.name for node in classes if any("CommandError" in ast.unparse(base) for base in node.bases)}
    return {"CommandError", *derived}


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield f"{file.relative_to(COURSE)}:{node.lineno}", node


def named_calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the place, the function's name without the object it belongs to, and the node of each call."""
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2].lstrip("_")
                yield f"{file.relative_to(COURSE)}:{node.lineno}", name, node


def literals(text: ast.expr) -> Iterator[str]:
    """Yield the literal texts of an expression, without the braces of f-strings and without arguments of calls."""
    if isinstance(text, ast.Constant):
        yield str(text.value)
    elif isinstance(text, ast.JoinedStr):
        for part in text.values:
            yield from literals(part)
    elif isinstance(text, ast.BinOp):
        yield from literals(text.left)
        yield from literals(text.right)


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_errors_are_raised_by_key() -> None:
    """The key is a literal, and the call gives all values that the text names, so no text lacks a value."""
    used = set()
    for place, call in calls("phrase", *error_classes()):
        assert call.args, f"{place}: expected a key of errors.toml"
        key = call.args[0]
        assert isinstance(key, ast.Constant), f"{place}: expected a key of errors.toml, got {ast.unparse(key)}"
        assert key.value in ERRORS, f"{place}: expected a key of errors.toml, got {key.value!r}"
        assert all(given.arg for given in call.keywords), f"{place}: expected values by name, got **"
        assert len(call.args) == 1, f"{place}: expected values by name"
        given = {given.arg for given in call.keywords} - {"exit_code"}
        assert given == fields(ERRORS[key.value]["en"]), f"{place}: other values than {key.value} names"
        used.add(key.value)
    assert used == ERRORS.keys()


def test_messages_are_used_with_their_values() -> None:
    patterns = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                patterns.add(re.escape(node.value))
            if isinstance(node, ast.JoinedStr):
                parts = [re.escape(part.value) if isinstance(part, ast.Constant) else r"\w+" for part in node.values]
                patterns.add("".join(parts))
            if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
                patterns.add(re.escape(str(node.left.value)) + r"\w+")
    either = re.compile("|".join(pattern for pattern in patterns if re.search(r"[a-z]{3}", pattern)))
    assert [key for key in MESSAGES if not either.fullmatch(key)] == []


def test_messages_get_what_they_name() -> None:
    checked = 0
    for place, name, call in named_calls():
        if name in WORDS and call.args and isinstance(call.args[0], ast.Constant):
            key, given = call.args[0].value, {given.arg for given in call.keywords}
            assert key in MESSAGES, f"{place}: expected a key of messages.toml, got {key!r}"
            missing = fields(MESSAGES[key]["en"]) - given
            assert None in given or not missing, f"{place}: {key} lacks {missing}"
            checked += 1
    assert checked > 100


def test_prose_is_printed_by_key() -> None:
    """Printing code has no words of its own. Scripts of maintainers may have some."""
    for place, name, call in named_calls():
        if name in PRINTERS and call.args and not place.startswith(FOR_MAINTAINERS):
            written = " ".join(literals(call.args[0]))
            is_prose = re.search(r"\b[a-z]{3,}\b", written.replace("$ python", ""))  # keys have underscores
            assert written in MESSAGES or not is_prose, f"{place}: {written!r}"


@pytest.mark.parametrize("texts", [ERRORS, MESSAGES], ids=["errors", "messages"])
def test_texts_exist_in_both_languages(texts: dict[str, dict[str, str]]) -> None:
    for key, text in texts.items():
        assert tuple(text) == LANGUAGES, key
        assert fields(text["en"]) == fields(text["ja"]), key
        assert not JAPANESE.search(text["en"]), key
        bare = re.sub(r"\{[^}]*\}", "", text["en"])
        assert key in ALIKE or JAPANESE.search(text["ja"]) or not re.search("[A-Za-z]", bare), key
    assert not ERRORS.keys() & MESSAGES.keys()


def test_every_command_is_asked_for_a_language() -> None:
    """Its errors are in this language, too."""
    told = set()
    for file, tree in trees().items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and "lang" in {one.arg for one in function.args.args}:
                assert "with reporting(lang)" in ast.unparse(function), f"{file.name}: {function.name}"
                told.add(f"{'.'.join(file.relative_to(COURSE).with_suffix('').parts)}:{function.name}")
    places = {*FOR_LEARNERS.values(), *FOR_INSTRUCTORS.values()} - {"viz.viz_commands:app"}
    assert places <= told
    assert len([place for place in told if place.startswith("viz.viz_commands:")]) == 6


FILES_TO_READ = {
    "bad.jsonl": "[]\n",
    "empty.jsonl": "",
    "good.jsonl": '{"prompt": "x"}\n',
    "other.jsonl": '{"id": "other", "text": "", "finish_reason": "stop"}\n',
    "bad.json": "{}",
    "new.json": '{"format": "tiny-llm run", "version": 99}',
    "quiet.py": "pass\n",
    "ends.py": "raise SystemExit(3)\n",
    "raises.py": "raise ValueError('x')\n",
    "full/file": "",
}
PROVOKED = [  # what is typed: which error of errors.toml that is
    ("nxt", "command_misspelt"),
    ("xyzzy", "command_unknown"),
    ("hint w9", "task_unknown"),
    ("hint 1.2", "task_misspelt"),
    ("reset w1d1.9", "task_unknown"),
    ("test --day 3", "day_without_week"),
    ("test --week 9", "week_unknown"),
    ("test --week 1 --day 9", "day_unknown"),
    ("test w9d9.9", "task_unknown"),
    ("solution w1d1.1 --day 1.1", "exclusive"),
    ("solution --day x", "wrong_value week_and_day"),
    ("watch", "watch_terminal"),
    ("next --lang fr", "wrong_value one_of"),
    ("doctor bad.json", "machine_file_alone"),
    ("doctor --report --json", "exclusive"),
    ("trace --seq 0", "wrong_value at_least"),
    ("trace --heads 7", "wrong_value heads_of_hidden"),
    ("trace --kv-heads 3", "wrong_value divisor_of"),
    ("main --temp -1", "wrong_value expects_number"),
    ("main --top-k -1", "wrong_value expects_whole"),
    ("main --top-p 2", "wrong_value expects_number_above"),
    ("main --min-p 2", "wrong_value expects_number_to"),
    ("main --repetition-penalty 0", "wrong_value expects_number_to"),
    ("main --seed -1", "wrong_value expects_whole_to"),
    ("main --stop=", "wrong_value expects_stop"),
    ("main --threads 0", "wrong_value from_to"),
    ("main --layers tuned --bits 4 --dtype float16 --prompt x", "wrong_value tuned_dtype"),
    ("main --layers tuned --fast --prompt x", "fast_of_unquantised"),
    ("main --raw --system x", "chat_of_raw"),
    ("main --prompt=", "prompt_empty"),
    ("main --prompt \udcff", "text_not_utf8"),
    (f"main --prompt {'x' * 9999}", "prompt_too_long"),
    ("main --model nowhere --prompt x", "bad_model"),
    ("roofline --bits 0", "wrong_value above"),
    ("batch empty.jsonl", "batch_no_requests"),
    ("batch bad.jsonl", "batch_line batch_not_object"),
    ("batch good.jsonl --out good.jsonl", "batch_same_file"),
    ("batch good.jsonl --out no/out", "batch_no_folder"),
    ("batch good.jsonl --out full", "batch_out_no_file"),
    ("batch good.jsonl --out bad.json", "batch_out_no_results"),
    ("batch good.jsonl --out other.jsonl", "batch_out_other"),
    ("batch good.jsonl --cache slots --pages 3", "pages_of_slots"),
    ("batch good.jsonl --token-budget 1", "budget_too_small"),
    ("batch good.jsonl --impl mine", "serving_open"),
    ("batch good.jsonl --draft nowhere", "bad_model"),
    ("serve --port 99999", "wrong_value from_to"),
    ("serve --timeout 0", "wrong_value above"),
    ("serve --api-key=", "wrong_value key_letters"),
    ("viz attention --layer 99", "wrong_value viz_of_model"),
    ("viz attention --out good.jsonl --prompt x", "viz_out_folder"),
    (f"viz attention --prompt {'x' * 999}", "viz_prompt_page"),
    (f"viz sampling --prompt {'x' * 9999}", "viz_prompt_tokens"),
    ("viz rope --dims 7", "wrong_value viz_even"),
    ("viz mask --queries 99", "wrong_value viz_keys_of_queries"),
    ("viz mask --lengths x", "wrong_value viz_lengths"),
    ("viz kernel nowhere.py", "viz_script"),
    ("viz kernel quiet.py", "viz_no_call"),
    ("viz kernel quiet.py --threadgroup x", "wrong_value viz_three_numbers"),
    ("viz kernel ends.py", "viz_script_ended"),
    ("viz schedule bad.json", "viz_schedule_no_run"),
    ("viz schedule new.json", "viz_schedule_version"),
    ("viz schedule bad.json --out x.pdf", "wrong_value viz_out_file"),
    ("grade nowhere", "no_such_path"),
    ("grade full --format gradescope", "grade_folder"),
    ("grade full --format json --out full", "grade_file"),
    ("grade full --hidden nowhere", "grade_hidden"),
    ("grade full --patience 0", "wrong_value above"),
    ("grade-report bad.json", "grades_unreadable"),
    ("export --student full", "export_folder"),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("typed", "keys"), PROVOKED, ids=[ascii(typed[:60]) for typed, _ in PROVOKED])
def test_errors_as_they_are_shown(
    typed: str, keys: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error is a line in the language of the locale, in which only names and libraries use the other language."""
    for name, content in FILES_TO_READ.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", {"en": "en_US.UTF-8", "ja": "ja_JP.UTF-8"}[language])
    told = []
    monkeypatch.setattr(Messages, "__call__", recorded(Messages.__call__, told))
    result = CliRunner().invoke(app, typed.split(" "))
    error = result.stderr.splitlines()[-1]
    assert result.exit_code in (1, 2)
    assert error.startswith({"en": "error: ", "ja": "エラー: "}[language])
    assert {"error", *keys.split()} <= {*told}
    assert bool(JAPANESE.search(error)) == (language == "ja")
    if language == "ja" and not keys.startswith(WITH_REASONS):
        assert not re.search(r"[a-z]{2,}( [a-z]{2,}){2}", result.stderr), result.stderr


def recorded(call: Callable[..., str], told: list[str]) -> Callable[..., str]:
    def record(words: Messages, key: str, /, **values: object) -> str:
        told.append(key)
        return call(words, key, **values)

    return record


def test_chat_in_japanese() -> None:
    """All messages of the command are in Japanese. The model's answer is on stdout."""
    lines = ["/help", "/system x", "/system", "/reset", "/nope", "Hello", "x " * 9999, *["x " * 250] * 3]
    options = ["--lang", "ja", "--max-tokens", "9", "--temp", "0"]
    result = CliRunner().invoke(app, ["chat", *options], input="\n".join(lines))
    assert result.exit_code == 0
    assert not re.search(r"[a-z]{2,}( [a-z]{2,}){2}", result.stderr), result.stderr
    ja = Messages("ja")
    for key in ("chat_help", "chat_forgotten"):
        assert ja(key) in result.stderr
    for said in (ja("chat_system", text=ja("chat_none")), ja("chat_unknown", command="/nope"), ja("reply_most")):
        assert said in result.stderr
    assert re.search(ja("chat_full", context=r"\d+", forgotten=r"\d+", count=r"\d+"), result.stderr)
    assert len([line for line in result.stderr.splitlines() if line and not JAPANESE.search(line)]) == 0


def test_main_in_japanese() -> None:
    typed = ["main", "--lang", "ja", "--prompt", "Once", "--max-tokens", "3", "--stop", "q", "--layers", "plain"]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 0
    assert [bool(JAPANESE.search(line)) for line in result.stderr.splitlines()] == [False, True, True, True, True]


def test_the_language_ends_with_the_command() -> None:
    """This matters because a test or a server runs several commands in one process."""
    before = Messages().language
    with pytest.raises(Exit), reporting("ja") as words:
        raise CommandError("prompt_empty") if words.language == "ja" else AssertionError
    assert Messages().language == before

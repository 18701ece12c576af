"""What the commands say, in both languages: the texts themselves, and each place that uses one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from tiny_llm_course.language import LANGUAGES
from tiny_llm_course.toml import read_toml

COURSE = Path(__file__).parents[2] / "src" / "tiny_llm_course"
FILES = sorted(COURSE.rglob("*.py"))
ERRORS, MESSAGES = (read_toml(COURSE / name) for name in ("errors.toml", "messages.toml"))
JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
ALIKE = {"doctor_python", "trace_softmax", "viz_page_not_a_number"}  # Japanese uses the English word
WORDS = {"say", "words", "in_all", "Messages()"}  # how Messages are called
PRINTERS = {"say", "show", "echo", "print"}
FOR_MAINTAINERS = ("stub", "grading/judge.py", "grading/worker.py")


@pytest.fixture
def device() -> None:
    """Nothing here computes on one."""


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8"), str(file)) for file in FILES}


@cache
def error_classes() -> set[str]:
    """CommandError, and what is derived from it."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    derived = {node.name for node in classes if any("CommandError" in ast.unparse(base) for base in node.bases)}
    return {"CommandError", *derived}


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield f"{file.relative_to(COURSE)}:{node.lineno}", node


def named_calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Place, name without what it is an attribute of, call."""
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2].lstrip("_")
                yield f"{file.relative_to(COURSE)}:{node.lineno}", name, node


def literals(text: ast.expr) -> Iterator[str]:
    """What of an expression is text as it is: not what is in the braces of an f-string, nor an argument of a call."""
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
    """With a key that is written out, and with the values that its text names: no text can lack one."""
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
    """What is printed holds no words of its own. Scripts of maintainers may."""
    for place, name, call in named_calls():
        if name in PRINTERS and call.args and not place.startswith(FOR_MAINTAINERS):
            written = " ".join(literals(call.args[0]))
            assert not re.search(r"[A-Za-z]{2,} [a-z]{2,}", written), f"{place}: {written!r}"


@pytest.mark.parametrize("texts", [ERRORS, MESSAGES], ids=["errors", "messages"])
def test_texts_exist_in_both_languages(texts: dict[str, dict[str, str]]) -> None:
    for key, text in texts.items():
        assert tuple(text) == LANGUAGES, key
        assert fields(text["en"]) == fields(text["ja"]), key
        assert not JAPANESE.search(text["en"]), key
        bare = re.sub(r"\{[^}]*\}", "", text["en"])
        assert key in ALIKE or JAPANESE.search(text["ja"]) or not re.search("[A-Za-z]", bare), key
    assert not ERRORS.keys() & MESSAGES.keys()

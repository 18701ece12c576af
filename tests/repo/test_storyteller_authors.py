"""The messages that authors of plots see about mistakes, and the commands that tell, lint and check stories."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_stories import small
from typer.testing import CliRunner
from verdicts import ALL

from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_models import check, storyteller
from tiny_llm_models.storyteller import LANGUAGES, Lexicon, lexicon, tell
from tiny_llm_models.storyteller.__main__ import app as authors
from tiny_llm_models.storyteller.__main__ import lint as lint_of_authors
from tiny_llm_models.storyteller.lint import TELLINGS, Report, lint_plot, lint_words

device = pytest.fixture(lambda: None)  # nothing here computes on one


LINTED = TELLINGS if ALL else 12  # of each plot


@pytest.mark.parametrize("language", LANGUAGES)
def test_plots_have_no_problems(language: str):
    words = lexicon(language)
    assert lint_words(words).problems == []
    for plot in words.plots.values():
        assert lint_plot(words, plot, LINTED).problems == [], plot.name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{hero.a} came (in.", "plot 'p': expected as many '\\)' as '\\(', in '{hero.a} came \\(in.'"),
        ("{hero.a} came) in.", "expected '\\(' before '\\)'"),
        ("{hero.a came.", "expected text, {role}, <phrase> or \\(a\\|b\\) at '{hero.a came.'"),
        ("{hero a} came.", "expected {role}, {role.form}, .* got {hero a}"),
        ("<nothing>, {hero.a} came.", "expected the name of a phrase, got <nothing>"),
        ("<loop>, {hero.a} came.", "expected phrases that do not contain themselves, got <loop>"),
        ("<joy hero hero>", "expected <joy who>, got <joy hero hero>"),
        ("{hero.a} came. -> hero at park", "expected an effect like .* got 'hero at park'"),
        ("[a b c] {hero.a} came.", "expected a condition like .* got 'a b c'"),
        ([], "expected a line or a list of lines, got nothing"),
        (["?"], "expected lines after '\\?'"),
        (["{hero.a} came.", []], "expected a line or a list of lines, got nothing"),
        (["{hero.a} came.", ["?", "It rained."]], "expected '\\?' only at the start of a choice"),
    ],
)
def test_mistakes_in_the_notation(line: Any, message: str):
    with pytest.raises(ValueError, match=message):
        small([line])


def test_missing_keys():
    with pytest.raises(
        ValueError, match=r"plot 'p': expected the keys \['cast', 'end', 'gists', 'questions'\] as well"
    ):
        small([]).notation.plot("p", {"tell": []})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{hero} came."], "hero is named before it is introduced by one of \\['a', 'some'\\], in '{hero} came.'"),
        (["{hero.a} met {friend.a}."], "expected one of the roles \\['hero'\\], got 'friend'"),
        (["{hero.the} came."], "expected a form of a person, one of .* got 'the'"),
        (
            ["{hero.a} had {ball.a}. -> ball: nobody"],
            "expected 'gone' or the role of a person, spot or place, got 'nobody'",
        ),
        (["{hero.a} came. -> park: hero"], "expected the role of a person or thing, got 'park'"),
        (["{hero.a} came. -> +hero"], "expected a mark, got the role 'hero'"),
        (["{hero.a} saw {hero:toy.a}."], "expected another name than 'hero', which is in the cast"),
        (["{hero.a} came. -> hero: park"], "no line names {park}: name it, as in {park.at}, or write '-> hero: gone'"),
        (["{hero.a} came.", "[hero: there] In the park."], "expected a role, got 'there'"),
        (
            ["{hero.a} came.", ["[hero: park] In the park.", "[hero: park] At the park."]],
            "expected that one of these can be told, but no condition holds: .* \\(seed 0\\)",
        ),
        (["{hero.a} came. -> hero: hero"], "expected a spot or place for 'hero', got the person 'hero'"),
        (["{hero.a} came. -> +late"], "expected a line with \\[late\\], because \\+late is set"),
        (["{hero.a} came.", "[late] It was late."], "expected a mark that some line sets, got 'late'"),
        (
            ["{hero.a} came.", "[hero: park] In the park."],
            "never told in \\d+ stories: '\\[hero: park\\] In the park.'",
        ),
        (
            ["{hero.a} met {other.a}.", "{hero.he} waved."],
            "{hero.he} could mean another person: give it a long form, as in {hero/he}",
        ),
        (
            ["{hero.a} and {guest.a} had {ball.a}. -> ball: hero", "It changed. -> ball: guest"],
            "write '-> ball: hero > guest'",
        ),
        (["{hero.a} came"], "expected the end of a sentence, got"),
        (["{hero.a} came in ."], "odd text ' \\.'"),
        (['"Hello, said {hero.a}.'], "expected as many closing as opening quotation marks"),
        (["{hero.a} came."], "expected at least 150 different tellings of 300, got 1"),
    ],
)
def test_mistakes_in_a_plot(lines: list[str], message: str):
    more = {"cast": {"hero": "hero", "park": "outside"}} if "park" in str(lines) else {}
    words = small(lines, **more)
    assert any(re.search(message, problem) for problem in lint_plot(words, words.plots["p"]).problems)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cast": {"ball": "toy"}}, "expected a role 'hero'"),
        ({"cast": {"hero": "giant"}}, "hero: expected a group of words.toml, got 'giant'"),
        ({"cast": {"hero": "hero|toy"}}, "hero: expected groups of one sort, got 'hero|toy'"),
        ({"questions": [["Who came?", "(Tom|Ben)."]]}, "expected one answer without choices, got '(Tom|Ben).'"),
        ({"questions": [["[hero: gone] Who came?", "Tom."]]}, "none of the questions was ever possible"),
    ],
)
def test_mistakes_beside_the_lines_of_a_plot(more: dict[str, Any], message: str):
    words = small(["{hero.a} came."], **more)
    assert message in lint_plot(words, words.plots["p"]).problems


def test_mistakes_in_words_and_shared_lines():
    folder = Path(storyteller.__file__).parent / "english"
    words, rules = read_toml(folder / "words.toml"), read_toml(folder / "rules.toml")
    words["names"]["male"] = "Tom Tom Cat"
    words["colours"]["pink"] = "pink"
    words["strange"]["nouns"] = "gadget widget"
    rules["questions"]["where"]["answer"] = "{thing.nowhere} is {guest.at}."
    rules["chat"]["requests"] = ["Tell me a story about {owl.a} who {gist}."]
    expected = [
        "expected each name once, got 'Tom' again",
        "the name 'Cat' is another word too",
        "no entity has the colour 'pink' as a look",
        "[strange]: expected more nouns",
        "expected a form of a thing, one of",
        "expected one of the roles ['gist', 'hero', 'place', 'spot', 'thing', 'who'], got 'owl'",
    ]
    problems = lint_words(Lexicon("english", words, rules, {}, scenes={})).problems
    assert all(any(problem.startswith(each) for problem in problems) for each in expected), problems
    del rules["chat"]["short"]
    problems = lint_words(Lexicon("english", words, rules, {}, scenes={})).problems
    assert problems[-1] == "[chat]: expected the keys ['short'] as well"


def test_commands_of_authors(monkeypatch: pytest.MonkeyPatch):
    run = CliRunner()
    name = next(iter(lexicon("english").plots))
    result = run.invoke(authors, ["tell", "english", "--plot", name, "--seed", "3", "--count", "2", "--questions"])
    assert result.exit_code == 0
    assert result.output.count(f"# {name}, seed ") == 2
    assert re.search(r"\n  … \w", result.output)
    assert run.invoke(authors, ["tell", "english", "--plot", "nowhere"]).exit_code == 2
    assert run.invoke(authors, ["lint", "french"]).exit_code == 2
    assert run.invoke(authors, ["lint", "english", "--plot", "nowhere"]).exit_code == 2
    module = sys.modules[lint_of_authors.__module__]
    monkeypatch.setattr(module, "lint_plot", lambda words, plot: Report("told", []))
    result = run.invoke(authors, ["lint", "english"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, f"{list(lexicon('english').plots)[-1]}: told")
    monkeypatch.setattr(module, "lint_plot", lambda words, plot: Report("not told", ["it is odd"]))
    result = run.invoke(authors, ["lint", "english", "--plot", name])
    assert (result.exit_code, result.output) == (1, f"{name}: not told\n  it is odd\n1 problem\n")


# The command that checks


def checked(text: str | bytes, tmp_path: Path, *options: str) -> tuple[int, list[str]]:
    file = tmp_path / "stories.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = CliRunner().invoke(check.app, [str(file), *options])
    return result.exit_code, result.output.replace(str(file), "FILE").splitlines()


def test_right_stories_pass(tmp_path: Path):
    texts = [tell(lexicon(language), Random(seed)).text for seed in range(3) for language in LANGUAGES]
    assert checked("\n\n".join(texts), tmp_path) == (0, ["6 stories, 6 without faults"])
    wrapped = "\n\n".join(text.replace(". ", ".\n") for text in texts)
    assert checked(wrapped, tmp_path) == (0, ["6 stories, 6 without faults"])
    lines = "\n".join(json.dumps(each) for each in (texts[0], {"text": texts[1], "seed": 0}))
    assert checked(lines, tmp_path, "--jsonl") == (0, ["2 stories, 2 without faults"])


def test_each_fault_has_a_line(tmp_path: Path):
    right = tell(lexicon("english"), Random(0))
    code, lines = checked(f"{right.text}\n\n{right.lines[0].text}".encode() + b" \xff", tmp_path)
    assert code == 1
    assert any(re.match(r"FILE:2:\d+: broken-character: U\+FFFD", line) for line in lines), lines
    assert any(re.match(r"FILE:2:\d+: no-end: ", line) for line in lines), lines
    assert lines[-1].startswith("2 stories, 1 without faults; ")
    assert "broken-character: 1" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "nowhere.txt: .*No such file"),
        (["-"], "-: expected at least one story"),
        (["-", "--language", "french"], "expected one of english, japanese, got 'french'"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_bad_usage(arguments: list[str], message: str):
    result = CliRunner().invoke(check.app, arguments, input=" \n")
    assert result.exit_code == 2
    assert re.search(message, result.output)


def test_stories_come_from_stdin():
    result = CliRunner().invoke(check.app, ["-"], input=tell(lexicon("english"), Random(0)).text)
    assert (result.exit_code, result.output) == (0, "1 story, 1 without faults\n")


def test_lines_that_are_no_stories(tmp_path: Path):
    assert "line 1: Expecting value" in "\n".join(checked("A story.", tmp_path, "--jsonl")[1])
    code, lines = checked('"A story."\n{"title": 1}', tmp_path, "--jsonl")
    assert code == 2
    assert 'line 2: expected a string, or an object with a string "text"' in "\n".join(lines)

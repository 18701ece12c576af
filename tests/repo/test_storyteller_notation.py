"""The notation of plots: the stories that it tells, and what the checker reads in it."""

from __future__ import annotations

import re
from random import Random

import pytest
from small_stories import small, told

from tiny_llm_models.storyteller import tell
from tiny_llm_models.storyteller.reading import read

device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_a_choice_is_remembered():
    lines = ["{hero.a} came.", [["It rained. -> +rain", "{hero/he} got wet."], "It was dry."], "[rain] A bow shone."]
    assert {text.count("wet") + text.count("bow") for text in told(lines)} == {0, 2}


def test_optional_lines_and_alternatives():
    lines = ["{hero.a} came.", ["?", "{hero/he} (sang|danced)(| loudly)."]]
    ends = {text.partition(" came. ")[2].replace("Tom", "He").replace("Ben", "He") for text in told(lines)}
    assert ends == {
        "The end came.",
        *(f"He {did} The end came." for did in ("sang.", "sang loudly.", "danced.", "danced loudly.")),
    }


def test_the_checker_wants_what_the_telling_wants():
    words = small(["{hero.a} came.", ["[ball: hero] No.", "Yes."], "[not ball: hero] Never mind."])
    assert read(words, "A boy named Tom came. Yes. Never mind. The end came.").right
    assert not read(words, "A boy named Tom came. No. Never mind. The end came.").right
    assert not read(words, "A boy named Tom came. Yes. The end came.").right


def test_a_condition_at_the_beginning_of_a_sequence_decides_about_all_of_it():
    lines = [
        "{hero.a} came.",
        ["?", "It rained. -> +rain"],
        [["[rain] {hero/he} got wet.", "{hero/he} ran."], "All was dry."],
    ]
    words = small(lines)
    ends = {text.partition(" came. ")[2].replace("Tom", "He").replace("Ben", "He") for text in told(lines)}
    assert ends == {
        "It rained. He got wet. He ran. The end came.",
        "It rained. All was dry. The end came.",
        "All was dry. The end came.",
    }
    assert read(words, "A boy named Tom came. It rained. Tom got wet. He ran. The end came.").right
    assert not read(words, "A boy named Tom came. It rained. Tom ran. The end came.").right
    faults = read(words, "A boy named Tom came. He got wet. He ran. The end came.").faults
    assert [(fault.kind, fault.sentence) for fault in faults] == [("contradiction", 1)]


def test_a_choice_at_the_beginning_of_a_sequence_needs_one_condition_that_holds():
    lines = ["{hero.a} came.", [[["[rain] It was wet.", "[rain] It was cold."], "It was dark."], "It was dry."]]
    assert all("dark" not in text and "dry" in text for text in told(lines))


@pytest.mark.parametrize(
    ("lines", "pronoun"),
    [
        (["{hero.a} came.", "{hero/he} sat down."], True),
        (["{hero.a} met {other.a}.", "{hero/he} sat down."], False),
        (["{hero.a} met {guest.a}.", "{hero/he} sat down."], True),
        (["{hero.a} met {guest.a}.", "{guest} smiled.", "{hero/he} sat down."], False),
        (["{hero.a} met {guest.a}.", "{guest} smiled at {hero}.", "{hero/he} sat down."], True),
        (["{hero.a} came.", "It rained.", "It poured.", "{hero/he} sat down."], False),
        (["{hero.a} came.", '"{hero} is here!" said {other.a}.', "{hero/he} sat down."], False),
    ],
)
def test_pronouns_only_where_it_is_clear_who_is_meant(lines: list[str], pronoun: bool):
    assert any(re.search(r"\b[Hh]e sat", text) for text in told(lines)) == pronoun


def test_the_same_rule_for_the_checker():
    words = small(["{hero.a} met {other.a}.", "{hero/he} sat down."])
    faults = read(words, "A boy named Tom met a man named Ben. He sat down. The end came.").faults
    assert [(fault.kind, fault.sentence) for fault in faults] == [("wrong-pronoun", 1)]


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("Tom gave the blue ball to Anna. The end came.", "contradiction", 1),
        ("Anna gave the red ball to Tom. The end came.", "contradiction", 1),
        ("Tom gave the red ball to Tom. The end came.", "contradiction", 1),
        ("The end came. Tom gave the red ball to Anna.", "contradiction", 1),
        ("Tom gave the red ball to Zoe. The end came.", "two-names", 1),
        ("Tom gave the red doll to Anna. The end came.", "thing-from-nowhere", 1),
        ("Tom gave the red ball to Anna.", "no-end", 1),
        ("Tom gave", "no-end", 1),
        ('"Here you are,"', "no-end", 1),
        ("To Anna Tom ball the red. The end came.", "unknown-sentence", 1),
        ("Tom gave the red bxll to Anna. The end came.", "unknown-word", 1),
        ("Tom gave the red ボール to Anna. The end came.", "wrong-script", 1),
        ("Tom gave the red ball\ufffd to Anna. The end came.", "broken-character", 1),
    ],
)
def test_each_fault_where_it_is(text: str, kind: str, sentence: int):
    words = small(
        [
            "{hero.a} and {guest.a} had {ball.a}. -> ball: hero",
            "{hero} gave {ball.full} to {guest}.",
            ["?", '"Here you are," said {hero}.'],
        ]
    )
    start = "A boy named Tom and a girl named Anna had a red ball. "
    assert read(words, f"{start}Tom gave the red ball to Anna. The end came.").right
    faults = read(words, start + text).faults
    assert (kind, sentence) in [(fault.kind, fault.sentence) for fault in faults], faults


def test_a_name_that_does_not_suit_the_kind():
    words = small(["{guest.some} came.", "{guest} sat down."])
    assert read(words, "A girl came. Anna sat down. The end came.").right
    faults = read(words, "A girl came. Tom sat down. The end came.").faults
    assert [(fault.kind, fault.sentence, fault.explanation) for fault in faults] == [
        ("wrong-pronoun", 1, "Tom is female")
    ]


def test_effects_are_conditions():
    words = small(
        ["{hero.a} and {guest.a} had {ball.a}. -> ball: guest", "{hero} gave {ball} away. -> ball: hero > guest"]
    )
    reading = read(words, "A boy named Tom and a girl named Anna had a red ball. Tom gave the ball away. The end came.")
    assert [(fault.kind, fault.sentence) for fault in reading.faults] == [("contradiction", 1)]
    with pytest.raises(ValueError, match=r"expected \[ball: hero\] to hold before"):
        tell(words, Random(0))

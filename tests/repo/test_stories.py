"""The seeded program that writes the training text and the questions about held-out stories."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from tiny_llm_models import stories
from tiny_llm_models.stories import LANGUAGES, Mix, Question, Story, Words, ask, document, tell_long_story, tell_story
from tiny_llm_models.stories.words import Thing, held_out

FIRST_DOCUMENTS = "d6668fd1ad00f370ade8fd9b5accb968487fa446a4b75777886e267a7b21d170"  # sha256 of the first hundred


@pytest.fixture
def device() -> None:
    """Nothing here computes on one."""


@pytest.fixture(scope="module", params=[(language, split) for language in LANGUAGES for split in ("train", "test")])
def words(request: pytest.FixtureRequest) -> Words:
    return Words(*request.param)


def some_stories(words: Words, count: int = 60) -> Iterator[Story]:
    for i in range(count):
        random = Random(i)
        yield tell_long_story(words, random, 30) if i % 2 else tell_story(words, random, once=i % 4 == 0)


def test_the_same_text_on_every_machine():
    text = "".join(document("train", index, Mix(long=0.2)).text for index in range(100))
    assert hashlib.sha256(text.encode()).hexdigest() == FIRST_DOCUMENTS


def test_documents_differ():
    texts = [document("train", index, Mix(long=0.1)).text for index in range(500)]
    assert len(set(texts)) > 490  # small talk may repeat


@pytest.mark.parametrize("share", [0, 1])
def test_stories_that_just_stop_are_read_but_not_learned_by_heart(share: int):
    """The first piece is what the template says, the second is the story."""
    mix = Mix(long=1, unending=share)
    assert all(document("train", index, mix).pieces[1][1] == share for index in range(10))


def test_every_hole_is_filled(words: Words):
    for story in some_stories(words):
        assert not re.search(r"[{}<>]|None", story.text)
        assert all(sentence[:1] == sentence[:1].upper() for sentence in story.sentences)
        assert all(sentence.rstrip('"」')[-1] in ".?!。" for sentence in story.sentences)


def test_english_articles_and_spaces():
    for story in some_stories(Words("english", "train"), 200):
        assert not re.search(r"\ba [aeiou]|\ban [^aeiouh]|  | [.,!?]", story.text), story.text


def test_japanese_has_no_spaces_or_latin_letters():
    for story in some_stories(Words("japanese", "train"), 200):
        assert not re.search(r"[ A-Za-z.,!?]", story.text), story.text


def test_held_out_words_are_only_in_held_out_stories(words: Words):
    test, pairs = words.split == "test", 0
    for story in some_stories(words):
        assert all(held_out(person.name) == test for person in story.people)
        assert all(held_out(thing.noun) == test for thing in story.introduced)
        looks = [spot.look_and_noun for spot in story.spots.values() if spot.look_and_noun]
        assert all(held_out(pair) == test for pair in looks)
        assert len(looks) == len(story.spots) or not test
        pairs += len(looks)
    assert pairs > 60


def test_enough_is_held_out_and_enough_is_left(words: Words):
    names = {person.name for story in some_stories(words, 400) for person in story.people}
    assert len(words.nouns) >= (15 if words.split == "test" else 90)
    assert len(names) >= (150 if words.split == "test" else 400)


def questions(words: Words, count: int = 60) -> Iterator[tuple[Story, Question]]:
    for i, story in enumerate(some_stories(words, count)):
        for question in ask(story, Random(i), 8):
            yield story, question


def test_a_kind_with_a_wide_gap_is_rarely_asked_of(words: Words):
    asked = {1: 0, 12: 0}
    for story in some_stories(words):
        for gap in asked:
            asked[gap] += sum(question.kind == "first" for question in ask(story, Random(0), 6, gaps={"first": gap}))
    assert 0 < asked[12] < asked[1] * 0.7


def test_answers_stand_in_the_story(words: Words):
    for story, question in questions(words):
        value = question.value.rpartition("the ")[2]
        assert value in story.text, (story.text, question)
        assert value in question.answer


def test_each_question_has_one_answer(words: Words):
    for story in some_stories(words):
        found: dict[str, set[str]] = {}
        for i in range(5):
            for question in ask(story, Random(i), 20):
                found.setdefault(question.text, set()).add(question.answer)
        assert all(len(answers) == 1 for answers in found.values()), (story.text, found)


def test_what_lies_somewhere_is_had_by_nobody(words: Words):
    for story in some_stories(words):
        assert not set(story.spots) & set(story.holders)
        assert set(story.introduced) == set(story.spots) | set(story.holders)
        assert len(set(story.spots.values())) == len(story.spots)


def read_again(story: Story) -> dict[Thing, str]:
    """Where things lie by the words alone: what the last sentence says that put or moved each."""
    places: dict[Thing, str] = {}
    move = re.compile(
        r"\b(?:put|hid|laid|left|placed|took)\b.*\b((?:in|on|under|behind) the [\w ]+?)(?: and went on)?\.$"
    )
    for sentence in story.sentences:
        for thing in story.introduced:
            if re.search(rf"\b{thing.the}\b", sentence) and (found := move.search(sentence)):
                places[thing] = found[1]
    return places


def test_a_second_reading_finds_the_same_places(monkeypatch: pytest.MonkeyPatch):
    """Independent of the program's own record: a reader that looks at nothing but words."""
    monkeypatch.setattr(Story, "_object_form", lambda self, thing: thing.the)  # "it" is beyond this reader
    compared = 0
    for story in some_stories(Words("english", "train"), 300):
        places = read_again(story)
        for thing, spot in story.spots.items():
            compared += 1
            assert places[thing] == spot.at, (story.text, thing)
    assert compared > 500


@pytest.mark.parametrize(("language", "split"), [("french", "train"), ("english", "dev")])
def test_unknown_words(language: str, split: str):
    with pytest.raises(ValueError, match=f"expected one of .* got '{language}' and '{split}'"):
        Words(language, split)


def test_public_names():
    assert sorted(stories.__all__) == sorted(name for name in stories.__all__ if hasattr(stories, name))
    assert len(list(islice(some_stories(Words("english", "test")), 3))) == 3

"""What happens in the stories: each plot lets two people do something with a few things."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .telling import Story
from .words import Person, Thing, Words

__all__ = ["tell_long_story", "tell_story"]


def tell_story(words: Words, random: Random, once: bool = True) -> Story:
    """A story of one or two plots, with an opening and an ending.

    once: whether it begins as tales do ("Once upon a time").
    """
    story = Story(words, random)
    who, other = _introduce(story, once)
    things = words.things(random, 4)
    for _ in range(random.choice((1, 1, 2))):
        _filler(story, who, other, 0.5)
        random.choice(PLOTS)(story, who, other, things)
        if len(things) < 2:
            break
        who, other = random.choice(((who, other), (other, who)))
    story.say("ending", who=who, other=other, thing=story.introduced[-1])
    return story


def tell_long_story(words: Words, random: Random, sentences: int, once: bool = True) -> Story:
    """A story of several people who move many things about, with about this many sentences; it just stops."""
    story = Story(words, random)
    _introduce(story, once)
    things = words.things(random, max(4, sentences // 3))
    while len(story.sentences) < sentences:
        if random.random() < 0.15 and len(story.people) < 6:
            _befriend(story, random.choice(story.people))
        who, other = random.sample(story.people, 2)
        _filler(story, who, other, 0.4)
        if things and (len(story.introduced) < 2 or random.random() < 0.4):
            random.choice(PLOTS)(story, who, other, things)
        else:
            _stir(story, who, other, random.choice(story.introduced))
    return story


def _introduce(story: Story, once: bool) -> tuple[Person, Person]:
    who = story.new_person()
    story.say("opening" if once else "plain_opening", who=who)
    if story.random.random() < 0.5:
        story.say("likes", who=who)
    return who, _befriend(story, who)


def _befriend(story: Story, who: Person) -> Person:
    other = story.new_person()
    story.say("friend", who=who, other=other)
    return other


def _filler(story: Story, who: Person, other: Person, share: float) -> None:
    """Sentences that change nothing, and now and then somebody who goes somewhere."""
    random = story.random
    if random.random() < share:
        story.say("weather")
    if random.random() < share / 2:
        story.say("scene", spot=story.new_spot())
    if random.random() < share:
        story.go(random.choice((who, other)), story.words.place(random))
    if random.random() < share / 2:
        story.say("play", who=who, other=other)
    if story.introduced and random.random() < share / 2:
        thing = random.choice(story.introduced)
        if thing in story.spots:
            story.say("search", who=who, thing=thing, spot=story.new_spot())


def _stir(story: Story, who: Person, other: Person, thing: Thing) -> None:
    """Somebody does something with a thing that is known already."""
    random = story.random
    if thing in story.spots:
        if random.random() < 0.75:
            story.move(who, thing, story.new_spot())
        else:
            story.take(who, thing)
        return
    holder = story.holders[thing]
    if random.random() < 0.5:
        story.put(holder, thing, story.new_spot())
    else:
        story.give(holder, thing, other if holder is not other else who)


def _lost_and_found(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    thing = things.pop()
    story.own(who, thing)
    story.put(who, thing, story.new_spot())
    if story.random.random() < 0.6:
        story.move(other, thing, story.new_spot())
    _next(story)
    story.say("miss", who=who, thing=thing)
    _maybe(story, "sad", who=who)
    _maybe(story, "ask", who=who, other=other, thing=thing)
    _maybe(story, "comfort", who=other)
    for _ in range(story.random.choice((1, 1, 2))):
        story.say("search", who=who, thing=thing, spot=story.new_spot())
    story.say("discover", who=who, thing=thing, spot=story.spots[thing])
    _maybe(story, "joy", who=who)
    _maybe(story, "thanks", who=who, other=other)


def _gift(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    thing = things.pop()
    _day(story)
    story.own(who, thing, "find")
    _maybe(story, "admire", who=who, thing=thing)
    story.say("kindness", who=who, other=other)
    story.go(who, story.words.place(story.random))
    story.say("meet", who=who, other=other)
    story.give(who, thing, other)
    _maybe(story, "thanks", who=other, other=who)
    _maybe(story, "joy", who=other)
    if story.random.random() < 0.6:
        story.put(other, thing, story.new_spot())


def _tidy(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    story.say("tidy", who=who, other=other)
    own = [things.pop() for _ in range(min(len(things), story.random.choice((2, 3))))]
    for thing in own:
        story.own(who, thing)
        if story.random.random() < 0.3:
            story.say("admire", who=who, thing=thing)
        story.put(who, thing, story.new_spot())
    _maybe(story, "joy", who=who)
    if story.random.random() < 0.5:
        story.move(other, story.random.choice(own), story.new_spot())


def _surprise(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    thing = things.pop()
    _day(story)
    story.own(who, thing, story.random.choice(("own", "find")))
    story.say("trick", who=who, other=other)
    story.put(who, thing, story.new_spot())
    story.go(other, story.words.place(story.random))
    _next(story)
    story.say("search", who=other, thing=thing, spot=story.new_spot())
    story.say("discover", who=other, thing=thing, spot=story.spots[thing])
    _maybe(story, "admire", who=other, thing=thing)
    if story.random.random() < 0.5:
        story.take(other, thing)
    _maybe(story, "thanks", who=other, other=who)


def _trade(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    if len(things) < 2:
        return _gift(story, who, other, things)
    mine, yours = things.pop(), things.pop()
    story.own(who, mine)
    story.own(other, yours)
    if story.random.random() < 0.5:
        story.go(who, story.words.place(story.random))
        story.say("meet", who=who, other=other)
    story.give(who, mine, other)
    story.give(other, yours, who)
    _maybe(story, "joy", who=who)
    if story.random.random() < 0.5:
        story.put(who, yours, story.new_spot())
    return None


def _trick(story: Story, who: Person, other: Person, things: list[Thing]) -> None:
    thing = things.pop()
    story.own(other, thing)
    story.put(other, thing, story.new_spot())
    story.go(other, story.words.place(story.random))
    story.move(who, thing, story.new_spot())
    _next(story)
    story.say("miss", who=other, thing=thing)
    _maybe(story, "sad", who=other)
    if story.random.random() < 0.5:
        story.take(who, thing)
        story.give(who, thing, other)
        _maybe(story, "thanks", who=other, other=who)


PLOTS: list[Callable[[Story, Person, Person, list[Thing]], None]] = [
    _lost_and_found,
    _gift,
    _tidy,
    _surprise,
    _trade,
    _trick,
]


def _maybe(story: Story, kind: str, **roles: Person | Thing) -> None:
    if story.random.random() < 0.5:
        story.say(kind, **roles)


def _day(story: Story) -> None:
    """Says which day it was, in front of the next sentence."""
    story.begin(story.random.choice(story.words.scenery["day"]))


def _next(story: Story) -> None:
    story.begin(story.random.choice(story.words.scenery["next"]))

"""Questions about stories, each with its only right answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from .lexicon import Entity, Lexicon, capitalised
from .story import Story
from .telling import say
from .world import World

__all__ = ["KINDS", "ROLES", "Question", "ask", "plot_questions"]

# For each kind of question, the roles that its lines in rules.toml name. The answer names the entity of the last role.
ROLES = {
    "where": ("thing", "spot"),
    "first": ("thing", "spot"),
    "holder": ("thing", "who"),
    "person": ("who", "place"),
    "content": ("spot", "thing"),
    "colour": ("thing", "thing"),
}
KINDS = (*ROLES, "plot", "unsaid")


@dataclass(frozen=True)
class Question:
    """A question, and the one answer that counts as right.

    kind: one of KINDS. "plot" is one of the plot's own questions. The story does not answer a question of kind
    "unsaid".
    value: the place, person, thing or colour in the answer.
    last_mentioned: the answer with the last place in the story, which is the easiest guess; "" if the question does not
    ask for a place.
    """

    kind: str
    text: str
    answer: str
    value: str
    last_mentioned: str = ""


@dataclass(frozen=True)
class _Option:
    """A possible question. lines: a key of `ROLES`. The lines with this key in rules.toml give the question's wording.

    answered: whether the story answers the question.
    """

    lines: str
    roles: Mapping[str, Entity]
    answered: bool = True

    @property
    def kind(self) -> str:
        return self.lines if self.answered else "unsaid"


def ask(
    stories: Sequence[Story],
    random: Random,
    count: int,
    kinds: Sequence[str] = (),
    gaps: Mapping[str, int] | None = None,
    recast: Callable[[Entity], Entity] | None = None,
) -> list[Question]:
    """Ask up to `count` different questions about stories that have no person and no thing in common.

    kinds: the kinds of questions to ask; by default, all kinds. The kinds take turns if the stories allow it.
    gaps: how rare the questions of a kind are, keyed by kind; 2 by default. Questions of a kind with half the gap are
    asked twice as often.
    recast: as in `tell`, for the persons and things of questions that no story answers.
    """
    options = [
        option for option in _options(stories, random, recast or (lambda one: one)) if not kinds or option.kind in kinds
    ]
    random.shuffle(options)
    before: Counter[str] = Counter()
    ranks = []
    for option in options:
        ranks.append((gaps or {}).get(option.kind, 2) * before[option.kind])
        before[option.kind] += 1
    chosen = [option for _, option in sorted(zip(ranks, options, strict=True), key=lambda pair: pair[0])][:count]
    random.shuffle(chosen)
    return [each if isinstance(each, Question) else _question(stories, random, each) for each in chosen]


def plot_questions(story: Story) -> list[tuple[str, str]]:
    """Return the plot's questions that suit this story, and their answers. Return [] for a story that stops early."""
    if not story.ended:
        return []
    pairs = (say(story.lexicon, story.cast, *pair) for pair in story.plot.questions if story.suits(*pair))
    return [(question, answer) for question, answer in pairs]


def _options(stories: Sequence[Story], random: Random, recast: Callable[[Entity], Entity]) -> list[Question | _Option]:
    found: list[Question | _Option] = []
    for story in stories:
        found += [Question("plot", question, answer, answer) for question, answer in plot_questions(story)]
        for role in story.roles("thing"):
            found += _about_thing(story, role, random)
        for role in story.roles("person"):
            who, where = story.cast[role], story.world.where(role)
            if where in story.cast:
                found.append(_Option("person", {"who": who, "place": story.cast[where]}))
            elif not where:
                found.append(_Option("person", {"who": who}, answered=False))
    return found + list(_about_nobody(stories, random, recast))


def _about_thing(story: Story, role: str, random: Random) -> Iterator[_Option]:
    thing, where = story.cast[role], story.world.where(role)
    spots = [each for each in story.history(role) if each in story.cast and story.cast[each].sort in ("spot", "place")]
    if where in story.cast and story.cast[where].sort == "person":
        yield _Option("holder", {"thing": thing, "who": story.cast[where]})
    elif where in story.cast:
        alone = story.cast[where].sort == "spot" and story.world.contents(where) == [role]
        # each of the two questions reveals the other's answer
        lines = random.choice(("where", "where", "content")) if alone else "where"
        yield _Option(lines, {"thing": thing, "spot": story.cast[where]})
    if spots:
        yield _Option("first", {"thing": thing, "spot": story.cast[spots[0]]})
    if not thing["look"] or thing["look"] in story.text:
        yield _Option("colour", {"thing": thing}, answered=bool(thing["colour"]))


def _about_nobody(stories: Sequence[Story], random: Random, recast: Callable[[Entity], Entity]) -> Iterator[_Option]:
    """Yield questions about a person and a thing that are in none of the stories."""
    lexicon, taken = stories[0].lexicon, [entity for story in stories for entity in story.cast.values()]
    thing, person = (recast(lexicon.draw(sort, random, taken)) for sort in ("thing", "person"))
    yield _Option(random.choice(("where", "holder", "first", "colour")), {"thing": thing}, answered=False)
    if person["name"]:
        yield _Option("person", {"who": person}, answered=False)


def _question(stories: Sequence[Story], random: Random, option: _Option) -> Question:
    lexicon = stories[0].lexicon
    lines = lexicon.questions
    wording = random.choice(lines[option.lines]["ask"])
    if not option.answered:
        answer = lines["unsaid"]
        return Question("unsaid", _said(lexicon, option.roles, wording)[0], answer, answer)
    told = ROLES[option.lines][-1]
    value = option.roles["thing"]["colour"] if option.lines == "colour" else lexicon.form(option.roles[told], "name")
    question, answer = _said(lexicon, option.roles, wording, lines[option.lines]["answer"])
    guess = ""
    if told in ("spot", "place") and (last := _last_place(stories, "person" if told == "place" else "thing")):
        guess = _said(lexicon, {**option.roles, told: last}, lines[option.lines]["answer"])[0]
    return Question(option.kind, question, answer, value, guess)


def _said(lexicon: Lexicon, roles: Mapping[str, Entity], *lines: str) -> list[str]:
    return [capitalised(text) for text in say(lexicon, roles, *map(lexicon.notation.line, lines))]


def _last_place(stories: Sequence[Story], sort: str) -> Entity | None:
    """Return the last spot or place to which a person went (sort "person") or a thing was moved (sort "thing")."""
    last = None
    for story in stories:
        before = World()
        for line in story.lines:
            for what, where in sorted(line.world.facts - before.facts):
                at = story.cast.get(where)
                if at is not None and at.sort in ("spot", "place") and what in story.roles(sort):
                    last = at
            before = line.world
    return last

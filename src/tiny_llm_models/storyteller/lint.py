"""Checks plots for mistakes in the notation, and for problems in a few hundred tellings of each plot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from .grammar import GONE, Choice, Line, Plot, lines_of, slots
from .lexicon import Lexicon
from .proofreading import proofread
from .questions import ROLES, plot_questions
from .requests import GIST, gists
from .spelling import known_words
from .story import Story
from .strange import unknown
from .telling import say, tell
from .wishes import HERO, Wish

__all__ = ["Report", "lint_plot", "lint_words"]

TELLINGS = 300
_UNKNOWN = 10  # the least number of unknown things that are kept for tests
_DIFFERENT = 0.5  # at least this share of the tellings must differ from one another

_SORTS_ASKED = {"who": ("person",), "thing": ("thing",), "spot": ("spot", "place"), "place": ("place", "spot")}
_SORTS_REQUESTED = {**_SORTS_ASKED, HERO: ("person",), "place": ("place",), GIST: ()}


@dataclass(frozen=True)
class Report:
    """The findings of a check."""

    summary: str
    problems: list[str]


def lint_words(lexicon: Lexicon) -> Report:
    """Check words.toml for names that are repeated or are also ordinary words, and for colours that no entity has."""
    words, names = known_words(lexicon), lexicon.gender_of
    counts = Counter(lexeme.sort for lexeme in lexicon.lexemes)
    listed = [name for some in lexicon.names.values() for name in some]
    problems = [f"expected each name once, got {name!r} again" for name, count in Counter(listed).items() if count > 1]
    other_words = {word for word in words if word not in names}
    problems += [f"the name {name!r} is another word too" for name in listed if name.lower() in other_words]
    looks = {look for lexeme in lexicon.lexemes for look in lexeme.looks}
    problems += [f"no entity has the colour {colour!r} as a look" for colour in lexicon.colours if colour not in looks]
    problems += _rules(lexicon)
    kinds = ", ".join(f"{counts[sort]} {sort}s" for sort in counts)
    unit = "different words" if lexicon.language == "english" else "different runs of kana or of kanji"
    return Report(f"{len(listed)} names, {kinds}, {len(words)} {unit}", problems)


def _rules(lexicon: Lexicon) -> Iterator[str]:
    """Check [questions] and [chat] of rules.toml, and [strange] of words.toml."""
    questions, chat = lexicon.questions, lexicon.chat
    wanted = {
        "[questions]": ({"unsaid", *ROLES}, set(questions)),
        "[chat]": ({"requests", "short", "other", "talk"}, set(chat)),
        "[strange]": ({"starts", "middles", "nouns", *lexicon.genders}, set(lexicon.strange)),
    }
    missing = {name: sorted(expected - got) for name, (expected, got) in wanted.items() if expected - got}
    if missing:  # all other checks need these keys
        yield from (f"{name}: expected the keys {keys} as well" for name, keys in missing.items())
        return
    if len(unknown(lexicon, "test")) < _UNKNOWN:
        yield f"[strange]: expected more nouns; only {unknown(lexicon, 'test')} are for tests, of at least {_UNKNOWN}"
    for kind in ROLES:
        for source in (*questions[kind]["ask"], questions[kind]["answer"]):
            yield from _shared(lexicon, source, _SORTS_ASKED)
    for source in (*chat["requests"], *chat["short"]):
        yield from _shared(lexicon, source, _SORTS_REQUESTED)


def _shared(lexicon: Lexicon, source: str, sorts: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Check a line from rules.toml. sorts: the sorts that each role may have."""
    try:
        for slot in slots(lexicon.notation.line(source).text):
            if slot.role not in sorts:
                yield f"expected one of the roles {sorted(sorts)}, got {slot.role!r}, in {source!r}"
            for sort in sorts.get(slot.role, ()):
                lexicon.patterns(sort, slot.form)
    except ValueError as error:
        yield f"{error}, in {source!r}"


def lint_plot(lexicon: Lexicon, plot: Plot, tellings: int = TELLINGS) -> Report:
    """Check a plot. If the plot's notation has problems, report only these problems. Otherwise, also tell the plot many
    times."""
    problems = list(dict.fromkeys(_written(lexicon, plot)))
    if problems:
        return Report("not told", problems)
    stories: list[Story] = []
    for seed in range(tellings):
        try:
            story = tell(lexicon, Random(seed), Wish(plot=plot.name, short=seed % 5 == 0))
        except ValueError as error:
            problems.append(f"{error} (seed {seed})")
            continue
        stories.append(story)
        problems += [f"{problem} (seed {seed})" for problem in proofread(story)]
    different = len({story.choices for story in stories})
    if different < _DIFFERENT * tellings:
        problems.append(
            f"expected at least {_DIFFERENT * tellings:.0f} different tellings of {tellings}, got {different}"
        )
    if tellings >= TELLINGS:  # with fewer tellings, some lines may be missing by chance
        problems += _never(plot, stories)
    summary = f"{len(stories)} tellings, {different} different, {_lengths(stories)}"
    return Report(summary, _first_of_each(problems))


def _written(lexicon: Lexicon, plot: Plot) -> Iterator[str]:
    """Yield the problems that are visible without telling the plot."""
    if HERO not in plot.cast:
        yield f"expected a role {HERO!r}"
    for role, group in plot.cast.items():
        try:
            lexicon.sort(group)
        except ValueError as error:
            yield f"{role}: {error}"
            return
    lines = list(lines_of(plot.steps))
    questions = [line for pair in plot.questions for line in pair]
    marks = {effect.what for line in lines for effect in line.effects if not effect.where}
    named = {slot.role for line in lines for slot in slots(line.text)}
    for line in [*lines, *questions, *plot.gists]:
        of_words, of_state = _slots(lexicon, plot, line), _conditions(plot, line, marks)
        for problem in (*of_words, *of_state, *_effects(lexicon, plot, line), *_unnamed(lexicon, plot, line, named)):
            yield f"{problem}, in {line.source!r}"
    asked = {each.what for line in [*lines, *questions, *plot.gists] for each in line.conditions}
    yield from (f"expected a line with [{mark}], because +{mark} is set" for mark in sorted(marks - asked))
    for _, answer in plot.questions:
        if any(isinstance(part, Choice) for part in answer.text):
            yield f"expected one answer without choices, got {answer.source!r}"


def _slots(lexicon: Lexicon, plot: Plot, line: Line) -> Iterator[str]:
    here = {slot.role: slot.group for slot in slots(line.text) if slot.group}
    yield from (f"expected another name than {role!r}, which is in the cast" for role in here if role in plot.cast)
    for slot in slots(line.text):
        group = here.get(slot.role) or plot.cast.get(slot.role, "")
        if not group:
            yield f"expected one of the roles {sorted(plot.cast)}, got {slot.role!r}"
            continue
        try:
            for form in (slot.form, slot.short or slot.form):
                lexicon.patterns(lexicon.sort(group), form)
        except ValueError as error:
            yield str(error)


def _conditions(plot: Plot, line: Line, marks: set[str]) -> Iterator[str]:
    for condition in line.conditions:
        known = plot.cast if condition.where else marks
        if condition.what not in known:
            yield f"expected a {'role' if condition.where else 'mark that some line sets'}, got {condition.what!r}"
        if condition.where and condition.where not in plot.cast and condition.where != GONE:
            yield f"expected a role, got {condition.where!r}"


def _effects(lexicon: Lexicon, plot: Plot, line: Line) -> Iterator[str]:
    for effect in line.effects:
        if not effect.where:
            if effect.what in plot.cast:
                yield f"expected a mark, got the role {effect.what!r}"
            continue
        sorts = {role: lexicon.sort(group) for role, group in plot.cast.items()} | {GONE: GONE}
        if sorts.get(effect.what) not in ("person", "thing"):
            yield f"expected the role of a person or thing, got {effect.what!r}"
        for where in filter(None, (effect.where, effect.was)):
            if where not in sorts or sorts[where] == "thing":
                yield f"expected {GONE!r} or the role of a person, spot or place, got {where!r}"
            elif sorts.get(effect.what) == "person" and sorts[where] == "person":
                yield f"expected a spot or place for {effect.what!r}, got the person {where!r}"


def _unnamed(lexicon: Lexicon, plot: Plot, line: Line, named: set[str]) -> Iterator[str]:
    """Yield a problem for each effect whose spot or place no line names. After such an effect, a reader does not know
    where the thing is."""
    for effect in line.effects:
        where = effect.where
        if where in plot.cast and where not in named and lexicon.sort(plot.cast[where]) in ("spot", "place"):
            yield f"no line names {{{where}}}: name it, as in {{{where}.at}}, or write '-> {effect.what}: {GONE}'"


def _never(plot: Plot, stories: Sequence[Story]) -> Iterator[str]:
    told = {line.source for story in stories for line in story.lines}
    for source in dict.fromkeys(line.source for line in lines_of(plot.steps)):
        if stories and source not in told:
            yield f"never told in {len(stories)} stories: {source!r}"
    asked = {(question, answer) for story in stories[:50] for question, answer in plot_questions(story)}
    if plot.questions and not asked:
        yield "none of the questions was ever possible"
    for story in stories[:20]:
        for gist in gists(story):
            say(story.lexicon, story.cast, gist)


def _lengths(stories: Sequence[Story]) -> str:
    counts = sorted(len(story.sentences) for story in stories)
    return f"{counts[0]} to {counts[-1]} sentences" if counts else "none"


def _first_of_each(problems: Sequence[str]) -> list[str]:
    """Return each problem once, with the first seed that shows it."""
    found: dict[str, str] = {}
    for problem in problems:
        found.setdefault(re.sub(r" \(such as: .*?\), in | \(seed \d+\)$", "", problem), problem)
    return list(found.values())

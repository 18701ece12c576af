"""The checker, which reads a story with the grammar of all plots and names its faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from .focus import Focus
from .grammar import Plot
from .lexicon import Lexicon
from .matching import Match, Matcher
from .net import Edge, Net
from .recovery import Recovery
from .spelling import Spelling, last_word
from .story import Story, TextLine, sentence_spans
from .thread import Fault, Thread

__all__ = ["FAULTS", "Fault", "Reader", "Reading", "read"]

FAULTS = {
    "broken-character": "U+FFFD, half a character, or a control character",
    "wrong-script": "a character of another language's script",
    "unknown-word": "a word that is in no story",
    "unknown-sentence": "known words, but no line of any plot says this",
    "not-introduced": "a name that the story has not introduced",
    "two-names": "a person who is called by another name than before",
    "same-name": "one name for two persons",
    "wrong-pronoun": "he for she, or a pronoun that could mean another person",
    "thing-from-nowhere": "a thing that the story has not introduced",
    "contradiction": "a known sentence that does not fit the story so far, or this part of the plot",
    "no-end": "a story that stops before its end",
}
_THREADS = 48  # the most readings that are followed at the same time
_LINES = 400  # the most lines of a reading
_RECOVERIES = 10  # after this many recoveries, later faults are not reported


@dataclass(frozen=True)
class Reading:
    """The result of reading a story.

    story: the plot, cast and state that the reader understood; None if the reader understood no line.
    """

    sentences: list[str]
    faults: list[Fault]
    story: Story | None

    @property
    def right(self) -> bool:
        """Tell whether the program could have told this story."""
        return not self.faults


def read(lexicon: Lexicon, text: str, plots: Iterable[Plot] = ()) -> Reading:
    """Check a story. The story is right if one plot derives all of it, with one cast and one state of the world.

    plots: the plots that the story may have; by default, all plots.
    """
    return Reader(lexicon, text.strip(), list(plots) or list(lexicon.plots.values())).reading()


_spelling, _net = cache(Spelling), cache(Net)


class Reader:
    """A reader of one story."""

    def __init__(self, lexicon: Lexicon, text: str, plots: Sequence[Plot]):
        self.lexicon, self.text = lexicon, text
        self.spelling, self.nets = _spelling(lexicon), list(map(_net, plots))
        self.spans = sentence_spans(text, lexicon.language)
        self.matcher = Matcher(lexicon, text)
        self.complete = text[-1:] in set('.!?"。！？」')
        self.spelled = [Fault(kind, i, why) for i, each in self._words() for kind, why in self.spelling.faults(each)]

    @property
    def sentences(self) -> list[str]:
        """Return the sentences of the text, in order."""
        return [self.text[start:end] for start, end in self.spans]

    def reading(self) -> Reading:
        """Read the story, and return the reading with the fewest faults.

        If the hero does not suit the story's plot, the reader notices this only after the first line, which other plots
        can tell, too. So after more than one fault, read again, with one fault allowed in the first line.
        """
        if not self.text:
            return Reading([], [Fault("no-end", 0, "there is no story")], None)
        threads = [Thread(net, 0, Match(0, {}, Focus())) for net in self.nets]
        found = self._read(threads)
        if len(found.faults) > 1:
            misfits = [after for thread in threads for after in self.steps(thread, 1) if after.faults]
            if misfits and len((again := self._read(misfits)).faults) < len(found.faults):
                return again
        return found

    def _read(self, threads: list[Thread]) -> Reading:
        """Read on to the end, with a recovery after each fault."""
        for recoveries in range(_RECOVERIES + 1):
            ended, threads = self.run(threads)
            if ended:
                return self._result(ended)
            if threads[0].match.end >= len(self.text):
                return self._result(threads, self.no_end())
            if recoveries < _RECOVERIES:
                threads = Recovery(self, threads).threads()
        return self._result(threads)

    def run(self, threads: Sequence[Thread]) -> tuple[list[Thread], list[Thread]]:
        """Read until a fault. Return the readings that reached the end of the story, and the readings that came
        furthest."""
        agenda: dict[int, dict[object, Thread]] = {}
        for thread in threads:
            agenda.setdefault(thread.match.end, {}).setdefault(thread.key(), thread)
        ended, furthest = list[Thread](), list[Thread]()
        for _ in range(_LINES):
            if not agenda:
                break
            place = min(agenda)
            furthest = sorted(agenda.pop(place).values(), key=lambda thread: thread.cost)[:_THREADS]
            if place >= len(self.text):
                ended = [thread for thread in furthest if thread.net.may_end(thread.point, thread.world)]
                break
            for thread in furthest:
                for after in self.steps(thread):
                    agenda.setdefault(after.match.end, {}).setdefault(after.key(), after)
        return ended, furthest

    def steps(self, thread: Thread, budget: int = 0) -> Iterator[Thread]:
        """Yield the readings after one more line that the plot expects."""
        for edge in thread.net.expected(thread.point, thread.world):
            yield from self.step(thread, edge, budget)

    def step(self, thread: Thread, edge: Edge, budget: int = 0) -> Iterator[Thread]:
        """Yield the readings after this line. budget: how many faults the line may have."""
        if not edge.may_begin(self.text, thread.match.end):
            return
        unmet = [f"{each} does not hold" for each in thread.world.unmet(edge.line)]
        if len(unmet) > budget:
            return
        start, known = thread.match._replace(mismatches=()), thread.plot.cast if thread.lenient else ()
        for match in self.matcher.matches(edge, thread.plot.cast, start, budget - len(unmet), tuple(known)):
            faults = [Fault("contradiction", self.sentence_at(thread.match.end), each) for each in unmet]
            faults += [Fault(kind, self.sentence_at(place), why) for place, (kind, why) in match.mismatches]
            yield self.advanced(thread, edge, match, faults)

    def advanced(self, thread: Thread, edge: Edge, match: Match, faults: Iterable[Fault]) -> Thread:
        """Return the reading after a line with this match and these faults."""
        world, faults = thread.world.after(edge.line.effects), tuple(faults)
        text = self.text[thread.match.end : match.end].strip()
        return replace(
            thread,
            point=edge.target,
            match=match,
            world=world,
            lines=(*thread.lines, TextLine(text, world, edge.line.source)),
            faults=thread.faults + faults,
            cost=thread.cost + len(faults),
        )

    def sentence_at(self, place: int) -> int:
        """Return the number of the sentence that contains the character at this index."""
        return next((i for i, (_, end) in enumerate(self.spans) if place < end), len(self.spans) - 1)

    def no_end(self) -> Fault:
        """Return the fault of a story that stops before its plot has ended."""
        return Fault("no-end", len(self.spans) - 1, "the story stops here, but the plot goes on")

    def _words(self) -> Iterator[tuple[int, str]]:
        """Yield the sentences with their numbers, without the last word of an unfinished story."""
        sentences = self.sentences
        if not self.complete and sentences:
            last = sentences.pop()
            yield len(sentences), last[: -len(last_word(last))] if last_word(last) else last
        yield from enumerate(sentences)

    def _result(self, threads: Sequence[Thread], *more: Fault) -> Reading:
        """Return the reading with the lowest cost."""
        thread = min(threads, key=lambda thread: thread.cost)
        ordered = sorted(dict.fromkeys([*self.spelled, *thread.faults, *more]), key=lambda fault: fault.sentence)
        story = Story(self.lexicon, thread.plot, thread.match.cast, thread.lines) if thread.lines else None
        return Reading(self.sentences, ordered, story)

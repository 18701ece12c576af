"""The rule that decides to whom a pronoun or a dropped subject refers. Telling and reading use the same rule."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from .lexicon import Entity

__all__ = ["Focus"]

_QUOTE = re.compile('["「」]')
_STOP = re.compile("[.!?。！？]")


class Focus(NamedTuple):
    """The persons and things that a reader has in mind at one point of a story.

    subject: the person who was last named as a subject. since: the persons named after the subject.
    now, before: the persons and things named in this line, and in the previous line.
    """

    subject: str = ""
    since: frozenset[tuple[str, str]] = frozenset()  # role and gender
    now: frozenset[tuple[str, str]] = frozenset()
    before: frozenset[tuple[str, str]] = frozenset()
    thing: str = ""  # the thing named last
    person: str = ""  # the person named last
    fresh: bool = True  # whether this sentence has named no person yet
    quoted: bool = False  # whether the text is inside a quotation

    def next_line(self) -> Focus:
        """Return the focus after the end of a line."""
        return self._replace(now=frozenset(), before=self.now, fresh=True, quoted=False)

    def text(self, text: str) -> Focus:
        """Return the focus after words that name no person."""
        stops, quotes = _marks(text)
        if not stops and not quotes:
            return self
        return self._replace(fresh=self.fresh or stops, quoted=self.quoted != quotes)

    def named(self, role: str, entity: Entity, subject: bool | None) -> Focus:
        """Return the focus after a person or thing has been named.

        subject: whether the form marks the subject. None: the language's forms do not mark the subject, so the
        first person that a sentence names outside quotations is the subject.
        """
        if entity.sort == "thing":
            return self._replace(thing=role, now=self.now | {(role, "")})
        if entity.sort != "person":
            return self
        one = (role, entity["gender"])
        is_subject = not self.quoted and (self.fresh if subject is None else subject)
        fresh = self.fresh and self.quoted
        if is_subject:
            return self._replace(subject=role, since=frozenset(), now=self.now | {one}, person=role, fresh=fresh)
        since = self.since if role == self.subject else self.since | {one}
        return self._replace(since=since, now=self.now | {one}, person=role, fresh=fresh)

    def repeats(self, role: str) -> bool:
        """Tell whether the line has already named this role."""
        return any(each == role for each, _ in self.now)

    def clear(self, role: str, entity: Entity, short: str | None) -> bool:
        """Tell whether the short form can refer only to this role.

        short: the short form; "" if the word is dropped; None if the form, such as a possessive, has no long form.
        A form that has no long form is also clear if the line has already named the role, and the role is the subject
        or the person named last.
        """
        window = self.now | self.before
        if entity.sort == "thing":
            return self.thing == role and (role, "") in window
        gender = entity["gender"]
        if (role, gender) not in window or (self.quoted and short == ""):
            return False
        if short == "":
            return self.subject == role
        if short is None and role in (self.subject, self.person) and self.repeats(role):
            return True
        if self.subject == role:
            return not any(other == gender for _, other in self.since)
        return not any(other == gender and each != role for each, other in window)


@cache
def _marks(text: str) -> tuple[bool, bool]:
    """Tell whether the text contains the end of a sentence, and whether it opens or closes a quotation."""
    return bool(_STOP.search(text)), len(_QUOTE.findall(text)) % 2 == 1

"""The catalogue is complete in both languages. Every mistake is rejected by its task's tests, told apart from the
others and named by its own id, and every correct variant is accepted.

Verdicts are kept in verdicts/, and trusted until something changes that could change them. Each run computes a random
twentieth of them again, and `./course check --all` computes all of them again.
"""

import os

import pytest
import verdicts

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.tasks.syllabus import day_of, select_days, tasks

DAYS = {f"w{day.week}d{day.number}": day for day in select_days(None, None)}
TASKS = [pytest.param(task, id=str(task.id)) for task in tasks()]
SEED = int(os.environ.get("TINY_LLM_CHECK_SEED", "0"))
AGAIN = "\nTo see it again: TINY_LLM_CHECK_SEED={} python -m pytest tests/repo/test_catalogue.py -k {}"


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_there_in_both_languages(task):
    entry = entry_of(task.id)
    texts = [*entry.hints, entry.learned, *(mistake.diagnosis for mistake in entry.mistakes)]
    for text in texts:
        assert set(text) == {"en", "ja"}
        assert all(part.strip() for part in text.values())
        assert text["en"] != text["ja"]
        assert any("\u3040" <= letter <= "\u30ff" for letter in text["ja"]), f"not Japanese: {text['ja']}"


@pytest.mark.parametrize("task", TASKS)
def test_there_are_enough_mistakes(task):
    """A function has at least six mistakes, a class at least ten."""
    mistakes = entry_of(task.id).mistakes
    assert len({mistake.id for mistake in mistakes}) == len(mistakes)
    assert len(mistakes) >= 6


@pytest.mark.parametrize("name", DAYS)
def test_verdicts(name):
    """Check a day's verdicts. Unknown verdicts are computed, and kept if all of them are right."""
    day = DAYS[name]
    is_known = verdicts.is_known(day)
    if is_known and not verdicts.ALL:
        kept = verdicts.kept(day)
        assert ({*kept.rejected}, {*kept.accepted}) == verdicts.ids_of(day)
        return
    computed = verdicts.compute(day)
    assert not computed.problems, explained(day, computed, is_known)
    if not is_known:
        file = verdicts.write(day, computed).relative_to(verdicts.ROOT)
        pytest.fail(
            f"{name} was computed again, because something changed that can change its verdicts. All is well: commit "
            f"{file}, which was written. If CI says this, run `./course check catalogue` and commit.",
            pytrace=False,
        )


@pytest.mark.parametrize("task", [] if verdicts.ALL else verdicts.draw(SEED), ids=str)
def test_a_sample_of_the_verdicts(task):
    """They are computed again, although nothing has changed."""
    day = day_of(task)
    computed = verdicts.compute(day, task)
    again = f"to repeat: ./course check catalogue --seed {SEED} -- -k 'sample and {task}'"
    assert not computed.problems, f"{explained(day, computed, verdicts.is_known(day))}\n{again}"


def explained(day, computed, is_known):
    """Return the problems, and name both machines if the verdicts were right on the machine that computed them."""
    before = (
        f"depends on the machine: all was well on {verdicts.known(day)['machine']}, on {verdicts.machine()} it is not"
    )
    return "\n".join([before if is_known else "", *computed.problems])

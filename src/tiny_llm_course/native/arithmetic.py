"""The arithmetic of the tuned layers: what commands allow, and how they tell what is chosen and measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..ui import CommandError, Messages, show_note

if TYPE_CHECKING:
    from tiny_llm_native.matmul.arithmetic import Choice, Speeds

__all__ = ["allow_int8", "arithmetic_flags", "choices", "chosen_line"]


def allow_int8() -> None:
    """Let products with packed weights round activations to 8 bits, unless the environment names an arithmetic."""
    from tiny_llm_native.matmul.arithmetic import VARIABLE  # here, as below, so that an error in native code ends only
    # commands that need it

    os.environ.setdefault(VARIABLE, "fast")


def arithmetic_flags(words: Messages) -> tuple[str, ...]:
    """Return the compiler's options for kernels with packed weights. Say so if that has to be measured first.

    Raises:
        CommandError: the environment asks for an arithmetic that there is not.
    """
    from tiny_llm_native.matmul import arithmetic

    try:
        if len(arithmetic.candidates(os.environ.get(arithmetic.VARIABLE, "exact"))) > 1 and not arithmetic.remembered():
            show_note(words("arithmetic_measuring"))
        return arithmetic.flags()
    except ValueError as error:
        raise CommandError("wrong_arithmetic", reason=error) from None
    except RuntimeError:  # a kernel does not compile: whoever calls one is told
        return ()


def chosen_line(words: Messages) -> str:
    """Return a line that says which arithmetic is chosen."""
    from tiny_llm_native.matmul import arithmetic

    return words("arithmetic_chosen", choice=_told(arithmetic.chosen(), words))


def choices(speeds: Speeds, words: Messages) -> Iterator[str]:
    """Yield lines: the speeds of each arithmetic, then what is chosen without and with --fast."""
    from tiny_llm_native.matmul.arithmetic import choose

    for name in speeds.few:
        rates = {"few": f"{speeds.few[name] / 1e9:.1f}", "many": f"{speeds.many[name] / 1e9:,.0f}"}
        yield words("arithmetic_speed", name=name, **rates)
    yield from (words("arithmetic_problem", name=name, reason=reason) for name, reason in speeds.problems.items())
    yield words("arithmetic_exact", choice=_told(choose(speeds, "exact"), words))
    yield words("arithmetic_fast", choice=_told(choose(speeds, "fast"), words))


def _told(choice: Choice, words: Messages) -> str:
    if choice.few == choice.many:
        return choice.few
    return words("arithmetic_two", few=choice.few, many=choice.many)
